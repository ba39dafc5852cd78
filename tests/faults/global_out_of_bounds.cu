#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 64;
constexpr int kSize = 100;

template <bool kBroken>
__global__ void fill_kernel(int* values) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (kBroken || i < kSize) values[i] = 2 * static_cast<int>(i);
}

bool run(bool broken) {
  Guarded<int> values(kSize);
  launch(broken ? fill_kernel<true> : fill_kernel<false>, {2, kThreads}, nullptr, values.get());
  bool right = true;
  for (int i = 0; i < kSize; ++i) right &= values[i] == 2 * i;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("global_out_of_bounds", "no bounds check in the last block: writes past a tensor's end",
             ({.report = true, .asan = true, .says = "a write out of bounds: values + 400 bytes (values has 400)"}),
             ladder::faults::run);
