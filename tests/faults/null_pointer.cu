#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;

__global__ void bias_kernel(const int* bias, int* out) {
  out[threadIdx.x] = static_cast<int>(threadIdx.x) + bias[threadIdx.x];
}

bool run(bool broken) {
  Guarded<int> bias(kThreads, 1, "bias"), out(kThreads, -1, "out");
  launch(bias_kernel, {1, kThreads}, nullptr, broken ? nullptr : bias.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == i + 1;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("null_pointer", "an optional tensor that was not given is read",
             ({.report = true, .asan = true, .says = "a read out of bounds: a null pointer"}), ladder::faults::run);
