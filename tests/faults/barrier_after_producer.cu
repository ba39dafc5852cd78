#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

// Warp 0 fills a table for all. Warps that happen to run in ascending order hide the missing barrier.
template <bool kBroken>
__global__ void table_kernel(int* out) {
  LADDER_SHARED(int, table, [32]);
  if (threadIdx.x < 32) table[threadIdx.x] = static_cast<int>(threadIdx.x * threadIdx.x);
  if (kBroken) {
    __syncwarp();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = table[(threadIdx.x + 1) % 32];
}

bool run(bool broken) {
  Guarded<int> out(kThreads, -1);
  launch(broken ? table_kernel<true> : table_kernel<false>, {1, kThreads}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == (i + 1) % 32 * ((i + 1) % 32);
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("barrier_after_producer", "__syncwarp where other warps read: __syncthreads is needed",
             ({.value = true, .order = true}), ladder::faults::run);
