#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 128;

template <bool kBroken>
__global__ void reverse_kernel(const int* in, int* out) {
  LADDER_SHARED(int, tile, [kThreads]);
  tile[threadIdx.x] = in[threadIdx.x];
  if (!kBroken) __syncthreads();
  out[threadIdx.x] = tile[kThreads - 1 - threadIdx.x];
}

bool run(bool broken) {
  Guarded<int> in(kThreads), out(kThreads, -1);
  for (int i = 0; i < kThreads; ++i) in[i] = i;
  launch(broken ? reverse_kernel<true> : reverse_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == kThreads - 1 - i;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("barrier_before_use", "no __syncthreads between writing a tile and reading it",
             ({.value = true, .order = true}), ladder::faults::run);
