// A network that maps an input and a time step to an output of the input's shape, as a denoiser does.
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

  // Appends the forward pass; with gradients in the binding, backward() of the tape appends theirs. x [n, sample] in the
  // storage dtype; t [n], int32 or fp32. Returns the output, of x's shape and dtype, which lies in `output` if that is
  // given.
  virtual ValueId forward(Tape& tape, const Binding& binding, ValueId x, ValueId t,
                          const Region* output = nullptr) const = 0;
};

}  // namespace ladder::nn
