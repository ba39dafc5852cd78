#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

// A warp sum inside a branch that only some lanes take, with a mask that names all.
template <bool kBroken>
__global__ void warp_sum_kernel(int* out) {
  const unsigned lane = threadIdx.x;
  int sum = static_cast<int>(lane);
  if (lane < 16) {
    for (int width = 8; width > 0; width /= 2) sum += __shfl_xor_sync(kBroken ? 0xffffffffu : 0x0000ffffu, sum, width);
  }
  __syncwarp();
  out[lane] = sum;
}

bool run(bool broken) {
  Guarded<int> out(32, -1);
  launch(broken ? warp_sum_kernel<true> : warp_sum_kernel<false>, {1, 32}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < 32; ++i) right &= out[i] == (i < 16 ? 120 : i);
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("shuffle_absent_lanes", "a shuffle's mask names lanes that are elsewhere", ({.report = true}),
             ladder::faults::run);
