// A network that maps an input and a time step to an output of the input's shape, such as a denoiser. The embedding,
// which depends on time steps alone, is computed separately, so that a sampler can embed many time steps at once.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/state.h"
#include "runtime/tape.h"

namespace ladder::nn {

class Model {
 public:
  virtual ~Model() = default;

  // Its parameters, with PyTorch's names and shapes.
  virtual Declaration declare() const = 0;
  // Shape of one sample of the input and of the output, without the batch dimension: [h, w, c].
  virtual std::vector<std::int64_t> sample_shape() const = 0;
  // Shape of a batch: [samples, h, w, c].
  std::vector<std::int64_t> shape(int samples) const {
    std::vector<std::int64_t> shape = sample_shape();
    shape.insert(shape.begin(), samples);
    return shape;
  }
  std::int64_t elements(int samples) const {
    std::int64_t product = samples;
    for (const std::int64_t extent : sample_shape()) product *= extent;
    return product;
  }

  // embed() and forward_embedded() append to the tape. If the binding has gradients, the tape's backward() appends
  // their backward passes. The result is stored in `output` if given.
  //     embed              t [rows], int32 or fp32; returns [rows, embedding_columns()] in fp32
  //     forward_embedded   x [n, sample] in the storage dtype, n rows of an embedding; returns the output, of x's shape
  virtual std::int64_t embedding_columns(const Parameters& parameters) const = 0;
  virtual ValueId embed(Tape& tape, const Binding& binding, ValueId t, const Region* output = nullptr) const = 0;
  virtual ValueId forward_embedded(Tape& tape, const Binding& binding, ValueId x, ValueId rows,
                                   const Region* output = nullptr) const = 0;

  // The whole forward pass, t [n].
  ValueId forward(Tape& tape, const Binding& binding, ValueId x, ValueId t, const Region* output = nullptr) const {
    const ValueId rows = embed(tape, binding, t);
    return forward_embedded(tape, binding, x, rows, output);
  }
};

}  // namespace ladder::nn
