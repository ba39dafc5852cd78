// Idea:   a cluster of blocks computes a group: all of its channels at all positions of a sample, so that mean and deviation
//         need no second kernel. A warp has an output channel, whose weights its lanes read in runs of 16 bytes, one after
//         the other; x lies in shared memory, and each position of it feeds every tap that meets it.
// Parent: v01.
// Why:    v01's loads touch 32 cache lines each, its threads add one after the other, and the convolution's output goes
//         through memory to a second kernel. Here a warp's loads are 512 bytes of one row, the terms of a sum are spread over
//         32 lanes, and what a group's blocks exchange is two numbers each. Limiter: five loads of a lane at a time, and
//         the next five; multiply-adds on the CUDA cores, which 16 bits must be unpacked for.
// Needs:  sm_90a's clusters; sequences of up to 16; up to 5 taps, stride 1; groups of up to 128 channels (64 on cards whose
//         clusters have 8 blocks).

#include "dev/common/lane_sums.h"
#include "dev/conv1d/group_tile.h"
#include "dev/conv1d/x_rows.h"

namespace ladder::conv1d {
namespace {

constexpr int kChannels = 8;  // of a block: a warp each
constexpr int kThreads = kChannels * 32;
constexpr int kMostTaps = 5;
constexpr int kMostPositions = 16;

// Loads 16 bytes of weights of each tap, from channel c on.
template <bool kVectors, class T>
__device__ __forceinline__ void load_taps(const Problem& p, const T* w, int c, uint4 (&taps)[kMostTaps]) {
#pragma unroll
  for (int t = 0; t < kMostTaps; ++t) taps[t] = t < p.taps ? load_w_run<kVectors>(p, w + t * p.c, c) : uint4{};
}

template <class T, bool kVectors, int kPositions>
__global__ void __launch_bounds__(kThreads)
    conv1d_block_v02_kernel(Problem p, Block::Tensors t, GroupPlan plan, XParts<T> parts) {
  using Tile = GroupTile<kPositions, kChannels, 1>;
  constexpr int kRows = kPositions + kMostTaps - 1;
  LADDER_DYN_SMEM(x_rows);  // [position -taps/2 ..][c] T
  LADDER_SHARED(Tile, tile, [1]);
  ptx::cluster_arrive_relaxed();  // this block has started
  const GroupRange range(p, plan);
  const int pitch = pitch_of<T>(p);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int runs = pitch / kRunBytes;
  // A warp without a channel of its own computes the last one once more.
  const int channel = range.first_channel + min(warp, range.channels - 1);
  const T* const w = static_cast<const T*>(t.w) + channel * p.taps * p.c;

  ptx::grid_dependency_wait();
  uint4 next[kMostTaps];
  load_taps<kVectors>(p, w, lane * kRun<T>, next);
  for (int i = threadIdx.x; i < kRows * runs; i += kThreads) {
    copy_x_run<kVectors>(x_rows + i / runs * pitch + i % runs * kRunBytes, p, parts, range.first_sample,
                         i / runs - p.taps / 2, i % runs * kRun<T>);
  }
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();

  float sum[kPositions] = {};
  for (int run = lane; run < runs; run += 32) {
    float weights[kMostTaps][kRun<T>];
#pragma unroll
    for (int tap = 0; tap < kMostTaps; ++tap) unpack<T>(next[tap], weights[tap]);
    load_taps<kVectors>(p, w, min(run + 32, runs - 1) * kRun<T>, next);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      float x[kRun<T>];
      unpack<T>(*reinterpret_cast<const uint4*>(x_rows + row * pitch + run * kRunBytes), x);
#pragma unroll
      for (int tap = 0; tap < kMostTaps; ++tap) {
        const int position = row - tap;
        if (position < 0 || position >= kPositions) continue;
#pragma unroll
        for (int i = 0; i < kRun<T>; ++i) sum[position] = fmaf(weights[tap][i], x[i], sum[position]);
      }
    }
  }
  ptx::grid_dependency_launch();

  // Sum over the lanes: each lane gets the sum of one position, 32 / kPositions lanes that of the same one.
  const float of_position = sum_over_lanes<kPositions>(sum, lane);
  if (lane % (32 / kPositions) == 0) tile[0].part[0][lane / (32 / kPositions) * kChannels + warp] = of_position;
  __syncthreads();
  finish_group<T, kThreads>(p, t, plan, range, tile[0]);
}

GroupPlan plan_of(const Problem& p) {
  GroupPlan plan = plan_group(p, kChannels, kMostPositions);
  plan.samples = 1;
  return plan;
}

template <class F>
void dispatch_positions(int l, F&& f) {
  if (l <= 4) return f(std::integral_constant<int, 4>{});
  if (l <= 8) return f(std::integral_constant<int, 8>{});
  f(std::integral_constant<int, kMostPositions>{});
}

// Dynamic shared memory, in bytes, of the kernel for up to `positions` positions.
template <class T>
std::size_t smem_bytes(const Problem& p, int positions) {
  return std::size_t{1} * pitch_of<T>(p) * (positions + kMostTaps - 1);
}

const char* supports(const Problem& p) {
  if (p.stride2 || p.transposed) return "stride2 and transposed: its positions are those of x";
  if (p.taps > kMostTaps) return "more than 5 taps";
  if (p.l > kMostPositions) return "a sequence of more than 16 positions";
  if (plan_of(p).ranks == 0) return "a group of more channels than a cluster of blocks has warps";
  const auto bytes = with_storage_type(p.dtype, [&]<class T>(T) { return smem_bytes<T>(p, kMostPositions); });
  return bytes + 4096 <= std::size_t(most_smem_bytes()) ? nullptr : "x does not fit a block's shared memory";
}

void launch(const Problem& p, const Block::Tensors& t, void*, Stream stream) {
  const GroupPlan plan = plan_of(p);
  with_storage_type(p.dtype, [&]<class T>(T) {
    dispatch_positions(p.l, [&](auto positions) {
      constexpr int kPositions = decltype(positions)::value;
      const auto kernel = whole_rows(p, t.x_rest) ? conv1d_block_v02_kernel<T, true, kPositions>
                                                  : conv1d_block_v02_kernel<T, false, kPositions>;
      ladder::launch(kernel,
                     {.grid = plan.blocks(p),
                      .block = kThreads,
                      .dynamic_smem = smem_bytes<T>(p, kPositions),
                      .cluster = static_cast<unsigned>(plan.ranks),
                      .overlaps_previous = true},
                     stream, p, t, plan, XParts<T>(p, t.x, t.x_rest));
    });
  });
}

}  // namespace
}  // namespace ladder::conv1d

LADDER_VERSION(ladder::conv1d::Block, {.launch = ladder::conv1d::launch,
                                       .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                       .supports = ladder::conv1d::supports,
                                       .min_arch = 90})
