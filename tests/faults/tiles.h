// A pipeline of tiles through two shared buffers, filled by cp.async: the frame of the asynchronous faults.
#pragma once

#include "dev/ptx/cp_async.h"
#include "tests/faults/faults.h"

namespace ladder::faults {

inline constexpr int kTileThreads = 64;
inline constexpr int kNumTiles = 5;

enum class Break { none, wait, last_wait, commit, stage_barrier };

// out[i] = the sum over tiles t of in[t][63 - i]
template <Break kBreak>
__global__ void pipeline_kernel(const float* in, float* out) {
  LADDER_SHARED(float, tile, [2][kTileThreads]);
  const int i = static_cast<int>(threadIdx.x);
  auto load = [&](int t) {
    ptx::cp_async<4>(&tile[t % 2][i], in + t * kTileThreads + i, true);
    if (kBreak != Break::commit) ptx::cp_async_commit();
  };
  float sum = 0;
  load(0);
  for (int t = 0; t < kNumTiles; ++t) {
    const bool last = t + 1 == kNumTiles;
    if (!last) load(t + 1);
    if (kBreak != Break::wait) {
      if (last && kBreak != Break::last_wait) {
        ptx::cp_async_wait<0>();
      } else {
        ptx::cp_async_wait<1>();
      }
    }
    __syncthreads();
    sum += tile[t % 2][kTileThreads - 1 - i];
    if (kBreak != Break::stage_barrier) __syncthreads();
  }
  out[i] = sum;
}

template <Break kBreak>
bool run_pipeline(bool broken) {
  Guarded<float> in(kNumTiles * kTileThreads), out(kTileThreads, -1);
  for (int i = 0; i < kNumTiles * kTileThreads; ++i) in[i] = static_cast<float>(i % 251);
  launch(broken ? pipeline_kernel<kBreak> : pipeline_kernel<Break::none>, {1, kTileThreads}, nullptr, in.get(),
         out.get());
  bool right = true;
  for (int i = 0; i < kTileThreads; ++i) {
    float sum = 0;
    for (int t = 0; t < kNumTiles; ++t) sum += in[t * kTileThreads + kTileThreads - 1 - i];
    right &= out[i] == sum;
  }
  return right;
}

}  // namespace ladder::faults
