// Idea:   tensor cores multiply: 16 positions times 8 output channels. Weights go from memory straight into the registers
//         that mma.sync reads, 16 bytes a lane; a block's warps share the terms of its sums.
// Parent: v02.
// Why:    v02 unpacks each weight and multiplies it by each position on the CUDA cores, and a lane has five loads in
//         flight. Here an instruction multiplies 16 x 8 x 16, and a lane loads the next four runs before it multiplies
//         four. With several samples a tile has positions of all of them, so that they share the weights. Limiter: 16
//         to 32 KB of loads in flight in an SM, where memory's latency asks for 32; and the wait for the kernel in
//         front.
// Needs:  bf16 or fp16; sm_90a's clusters; sequences of up to 64; stride 1; groups of up to 256 channels (128 on cards whose
//         clusters have 8 blocks).

#include "dev/conv1d/group_tile.h"
#include "dev/conv1d/mma_tile.h"

namespace ladder::conv1d {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kBatch = 4;  // steps whose weights a lane loads ahead
constexpr int kMostXBytes = 64 << 10;

struct MmaGroupPlan {
  GroupPlan group;
  int rows;            // of x in a block's shared memory
  int channel_blocks;  // of 32 channels each, in shared memory at a time
};

template <class T, bool kVectors, class S>
__global__ void __launch_bounds__(kThreads, 2)
    conv1d_block_v03_kernel(Problem p, Block::Tensors t, MmaGroupPlan plan, XParts<T> parts) {
  using Tile = GroupTile<S::kPositions, S::kChannels, kWarps>;
  LADDER_DYN_SMEM(x_rows);  // [sample][position -taps/2 ..][channel] T
  LADDER_SHARED(Tile, tile, [1]);
  ptx::cluster_arrive_relaxed();  // this block has started
  const GroupRange range(p, plan.group);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int pitch = x_pitch(plan.channel_blocks);
  const int sample_rows = p.l + p.taps - 1;

  // Addresses of the lane's channels in w, and byte offsets of its positions in shared memory. Columns and rows beyond
  // the last read other ones: their sums are not used.
  const T* w[S::kColumns];
#pragma unroll
  for (int i = 0; i < S::kColumns; ++i) {
    const int channel = range.first_channel + min(8 * i + lane / 4, range.channels - 1);
    w[i] = static_cast<const T*>(t.w) + channel * p.taps * p.c;
  }
  int x_offset[S::kTiles][2];
#pragma unroll
  for (int i = 0; i < 2 * S::kTiles; ++i) {
    const int position = 8 * i + lane / 4;
    const int row = position < range.samples * p.l ? position / p.l * sample_rows + position % p.l : 0;
    x_offset[i / 2][i % 2] = row * pitch + lane % 4 * kRunBytes;
  }

  float sum[S::kTiles][S::kColumns][4] = {};
  ptx::grid_dependency_wait();
  for (int c0 = 0; c0 < p.c; c0 += plan.channel_blocks * kStepChannels) {
    const int channel_blocks = min(plan.channel_blocks, ceil_div(p.c - c0, kStepChannels));
    const int steps = p.taps * channel_blocks;
    uint4 next[kBatch][S::kColumns];
    KStep ahead(warp, channel_blocks);
    const auto load_batch = [&] {
#pragma unroll
      for (int i = 0; i < kBatch; ++i, ahead.advance(kWarps, channel_blocks)) {
        const int c = ahead.tap < p.taps ? c0 + ahead.channel_block * kStepChannels + lane % 4 * kRun<T> : p.c;
#pragma unroll
        for (int j = 0; j < S::kColumns; ++j) next[i][j] = load_w_run<kVectors>(p, w[j] + ahead.tap * p.c, c);
      }
    };
    load_batch();

    // Copy x's rows: all runs of 16 bytes of these channels.
    if (c0 > 0) __syncthreads();
    const int runs = channel_blocks * kStepChannels / kRun<T>;
    for (int i = threadIdx.x; i < plan.rows * runs; i += kThreads) {
      const int row = i / runs;
      copy_x_run<kVectors>(x_rows + row * pitch + i % runs * kRunBytes, p, parts,
                           range.first_sample + row / sample_rows, row % sample_rows - p.taps / 2,
                           c0 + i % runs * kRun<T>);
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    __syncthreads();

    KStep step(warp, channel_blocks);
    for (int first = warp; first < steps; first += kWarps * kBatch) {
      uint4 now[kBatch][S::kColumns];
#pragma unroll
      for (int i = 0; i < kBatch * S::kColumns; ++i)
        now[i / S::kColumns][i % S::kColumns] = next[i / S::kColumns][i % S::kColumns];
      load_batch();
#pragma unroll
      for (int i = 0; i < kBatch; ++i, step.advance(kWarps, channel_blocks)) {
        if (step.tap >= p.taps) break;
        const unsigned char* const x = x_rows + step.tap * pitch + step.channel_block * kStepRowBytes;
#pragma unroll
        for (int tile_row = 0; tile_row < S::kTiles; ++tile_row) {
          const auto row_lo = *reinterpret_cast<const uint4*>(x + x_offset[tile_row][0]);
          const auto row_hi = *reinterpret_cast<const uint4*>(x + x_offset[tile_row][1]);
#pragma unroll
          for (int j = 0; j < S::kColumns; ++j) multiply_step<T>(sum[tile_row][j], row_lo, row_hi, now[i][j]);
        }
      }
    }
  }
  ptx::grid_dependency_launch();

#pragma unroll
  for (int i = 0; i < S::kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) put_sums<S::kChannels>(tile[0].part[warp], sum[i][j], 16 * i, 8 * j);
  }
  __syncthreads();
  finish_group<T, kThreads>(p, t, plan.group, range, tile[0]);
}

template <class S>
MmaGroupPlan plan_of(const Problem& p) {
  MmaGroupPlan plan{.group = plan_group(p, S::kChannels, S::kPositions)};
  plan.rows = plan.group.samples * (p.l + p.taps - 1);
  plan.channel_blocks = std::min(ceil_div(p.c, kStepChannels), kMostXBytes / kStepRowBytes / plan.rows - 1);
  return plan;
}

template <class S>
void add_plan(const Problem& p, const char* name, std::vector<KernelPlan<Block>>& plans) {
  const MmaGroupPlan plan = plan_of<S>(p);
  if (plan.group.ranks == 0) return;
  plans.push_back({.name = name, .bind = [=](const Block::Tensors& t, void*) {
                     const LaunchConfig config{
                         .grid = plan.group.blocks(p),
                         .block = kThreads,
                         .dynamic_smem = std::size_t{1} * plan.rows * x_pitch(plan.channel_blocks),
                         .cluster = static_cast<unsigned>(plan.group.ranks),
                         .overlaps_previous = true};
                     const auto bind = [&]<class T>(T) {
                       const auto kernel = whole_rows(p, t.x_rest) ? conv1d_block_v03_kernel<T, true, S>
                                                                   : conv1d_block_v03_kernel<T, false, S>;
                       return bind_launch(kernel, config, p, t, plan, XParts<T>(p, t.x, t.x_rest));
                     };
                     return p.dtype == Dtype::bf16 ? bind(__nv_bfloat16{}) : bind(__half{});
                   }});
}

// Returns all plans. The default is narrow if one tile of 16 positions is all, as at batch 1; else tall, which reads
// the weights once for 64 positions.
std::vector<KernelPlan<Block>> plans(const Problem& p) {
  std::vector<KernelPlan<Block>> all;
  add_plan<Narrow>(p, "narrow", all);
  add_plan<Tall>(p, "tall", all);
  add_plan<Wide>(p, "wide", all);
  const bool one_tile = p.n * p.l <= Narrow::kPositions || all.size() == 1;
  return with_default(std::move(all), one_tile || std::string(all[0].name) != "narrow" ? 0 : 1);
}

const char* supports(const Problem& p) {
  if (p.stride2 || p.transposed) return "stride2 and transposed: its positions are those of x";
  if (p.l > Tall::kPositions) return "a sequence of more than 64 positions";
  const bool fits = plan_of<Narrow>(p).group.ranks + plan_of<Wide>(p).group.ranks + plan_of<Tall>(p).group.ranks > 0;
  return fits ? nullptr : "a group of more channels than a cluster of blocks computes";
}

}  // namespace
}  // namespace ladder::conv1d

LADDER_VERSION(ladder::conv1d::Block, {.plans = ladder::conv1d::plans,
                                       .plan_names = {"narrow", "tall", "wide"},
                                       .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                       .supports = ladder::conv1d::supports,
                                       .min_arch = 90})
