// A network that maps an input and a time step to an output of the input's shape, as a denoiser does. What it makes of time
// steps alone, an embedding, is apart: a sampler has those of many steps at once.
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
  // Of one sample of the input and of the output, without the batch: [h, w, c].
  virtual std::vector<std::int64_t> sample_shape() const = 0;
  // Of `samples` of them.
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

  // Both append to the tape; with gradients in the binding, backward() of the tape appends theirs. What they return lies in
  // `output` if that is given.
  //     embed              t [rows], int32 or fp32; returns [rows, embedding_columns()] in fp32
  //     forward_embedded   x [n, sample] in the storage dtype, n rows of an embedding; returns the output, as x
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
