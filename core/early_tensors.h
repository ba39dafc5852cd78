// Tensors that a kernel may load before it waits for the grid in front (dev/ptx/grid_dependency.h): weights, which no grid in
// flight writes. The host says so where it binds the kernel.
#pragma once

#include <vector>

#include "core/tensors.h"

namespace ladder {

// While it lives, kernels that this thread binds may load these tensors early. The caller promises that whenever such a
// kernel is launched, no grid that writes one of them is among the two in front of it on its stream, unless that one has
// ended. None by default.
class EarlyTensors {
 public:
  explicit EarlyTensors(std::vector<const void*> tensors);
  ~EarlyTensors();
  EarlyTensors(const EarlyTensors&) = delete;
  EarlyTensors& operator=(const EarlyTensors&) = delete;

 private:
  std::vector<const void*> before_;
};

// Returns true if the kernel that is being bound may load `tensor` early.
bool loads_early(const void* tensor);

// Process-wide switch of early loads, for kernels that are bound from then on. On by default.
void load_early(bool on);

// Returns true for the tensors that callers may declare: the weights that a pass reads, "w" in all of them. Harness and trainer
// declare no other, so that a kernel which loads an image early is still found.
bool is_weights(const TensorSpec& spec);

}  // namespace ladder
