#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 128;
constexpr int kTiles = 6;

// Sums over tiles that pass through one buffer: the next tile may not be written before all have read this one.
template <bool kBroken>
__global__ void sum_tiles_kernel(const int* in, int* out) {
  LADDER_SHARED(int, tile, [kThreads]);
  int sum = 0;
  for (int t = 0; t < kTiles; ++t) {
    tile[threadIdx.x] = in[t * kThreads + threadIdx.x];
    __syncthreads();
    sum += tile[(threadIdx.x + 33 * t) % kThreads];
    if (!kBroken) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

bool run(bool broken) {
  Guarded<int> in(kTiles * kThreads), out(kThreads, -1);
  for (int i = 0; i < kTiles * kThreads; ++i) in[i] = i * i % 1009;
  launch(broken ? sum_tiles_kernel<true> : sum_tiles_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) {
    int sum = 0;
    for (int t = 0; t < kTiles; ++t) sum += in[t * kThreads + (i + 33 * t) % kThreads];
    right &= out[i] == sum;
  }
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("barrier_before_reuse", "no __syncthreads between reading a tile and overwriting it",
             ({.value = true, .order = true}), ladder::faults::run);
