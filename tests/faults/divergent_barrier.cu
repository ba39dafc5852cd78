#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 64;

template <bool kBroken>
__global__ void divergent_kernel(int* out) {
  LADDER_SHARED(int, tile, [kThreads]);
  if (threadIdx.x < 32) {
    tile[threadIdx.x] = 1;
    if (kBroken) __syncthreads();
  } else {
    tile[threadIdx.x] = 2;
    if (kBroken) __syncthreads();
  }
  if (!kBroken) __syncthreads();
  out[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}

bool run(bool broken) {
  Guarded<int> out(kThreads, -1);
  launch(broken ? divergent_kernel<true> : divergent_kernel<false>, {1, kThreads}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == (i < 32 ? 2 : 1);
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("divergent_barrier", "__syncthreads in both branches of a divergent condition", ({.report = true}),
             ladder::faults::run);
