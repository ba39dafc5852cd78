// Idea:   load weights as early as possible. A block prefetches its weights into the L2 before it waits for the kernel
//         in front; then each lane starts copies of all the weights that it will multiply, into shared memory. A lane
//         reads only its own copies: no barrier stands between a copy and its use.
// Parent: v03.
// Why:    v03 has four to eight loads of a lane in flight, and begins when the kernel in front has ended. Weights do
//         not depend on that kernel, and a prefetch changes nothing that a program can see, so the latency of DRAM
//         passes while that kernel still runs. Shared memory takes what registers cannot, up to 100 KB in flight in an
//         SM. Limiter: the fill of shared memory from the L2, x and the exchange.
// Needs:  as v03, with c, and c's two parts, multiples of 8; a tile of 16 positions and its weights in shared memory.

#include "dev/conv1d/group_tile.h"
#include "dev/conv1d/mma_tile.h"
#include "dev/ptx/prefetch_l2.h"

namespace ladder::conv1d {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kPositions = 16;
constexpr int kChannels = 8;
constexpr int kGroups = 4;  // of copies, so that the first ones are multiplied while the last are in flight
constexpr int kCopyBytes = 32 * kRunBytes;  // of a warp's weights in a step

using Tile = GroupTile<kPositions, kChannels, kWarps>;

// Plan of a block and its shared memory.
struct Plan {
  GroupPlan group;
  int rows;   // of x
  int units;  // of 32 channels
  int each;   // steps of a warp, in whole groups of copies

  int x_bytes() const { return rows * x_pitch(units); }
  int smem_bytes() const { return x_bytes() + each * kWarps * kCopyBytes; }
};

Plan plan_of(const Problem& p) {
  Plan plan{.group = plan_group(p, kChannels, kPositions), .units = ceil_div(p.c, kStepChannels)};
  plan.rows = plan.group.samples * (p.l + p.taps - 1);
  plan.each = ceil_div(p.taps * plan.units, kWarps * kGroups) * kGroups;
  return plan;
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    conv1d_block_v04_kernel(Problem p, Block::Tensors t, Plan plan, XParts<T> parts) {
  LADDER_DYN_SMEM(smem);  // x [sample][position -taps/2 ..][channel] T, then weights [step of a warp][thread][16 bytes]
  LADDER_SHARED(Tile, tile, [1]);
  ptx::cluster_arrive_relaxed();  // this block has started
  const GroupPlace place(p, plan.group);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int pitch = x_pitch(plan.units);
  const int sample_rows = p.l + p.taps - 1;
  const int row_elements = p.taps * p.c;
  const T* const weights = static_cast<const T*>(t.w) + place.first_channel * row_elements;
  if (threadIdx.x == 0) ptx::prefetch_l2(weights, place.channels * row_elements * static_cast<unsigned>(sizeof(T)));

  // Columns and rows beyond the last read other ones: their sums are not used.
  const T* const w = weights + min(lane / 4, place.channels - 1) * row_elements;
  int x_at[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int position = 8 * i + lane / 4;
    const int row = position < place.samples * p.l ? position / p.l * sample_rows + position % p.l : 0;
    x_at[i] = row * pitch + lane % 4 * kRunBytes;
  }
  unsigned char* const own = smem + plan.rows * pitch + threadIdx.x * kRunBytes;

  ptx::grid_dependency_wait();
  // Copy x's rows, then the lane's weights in groups; steps beyond the last are zeros.
  const int runs = plan.units * kStepChannels / kRun<T>;
  for (int i = threadIdx.x; i < plan.rows * runs; i += kThreads) {
    const int row = i / runs;
    copy_x_run<true>(smem + row * pitch + i % runs * kRunBytes, p, parts, place.first_sample + row / sample_rows,
                     row % sample_rows - p.taps / 2, i % runs * kRun<T>);
  }
  ptx::cp_async_commit();
  Step ahead(warp, plan.units);
  for (int i = 0; i < plan.each; ++i, ahead.advance(kWarps, plan.units)) {
    const int c = ahead.unit * kStepChannels + lane % 4 * kRun<T>;
    const bool any = ahead.tap < p.taps && c < p.c;
    ptx::cp_async<kRunBytes>(own + i * kWarps * kCopyBytes, any ? w + ahead.tap * p.c + c : w, any);
    if ((i + 1) % (plan.each / kGroups) == 0) ptx::cp_async_commit();
  }
  ptx::grid_dependency_launch();
  ptx::cp_async_wait<kGroups>();  // x has arrived
  __syncthreads();

  float sum[4] = {};
  Step step(warp, plan.units);
  int at = 0;
  const auto multiply_group = [&] {
    for (const int end = at + plan.each / kGroups; at < end; ++at, step.advance(kWarps, plan.units)) {
      if (step.tap >= p.taps) continue;
      const unsigned char* const x = smem + step.tap * pitch + step.unit * kStepRowBytes;
      multiply_step<T>(sum, *reinterpret_cast<const uint4*>(x + x_at[0]), *reinterpret_cast<const uint4*>(x + x_at[1]),
                       *reinterpret_cast<const uint4*>(own + at * kWarps * kCopyBytes));
    }
  };
  static_assert(kGroups == 4);
  ptx::cp_async_wait<3>();
  multiply_group();
  ptx::cp_async_wait<2>();
  multiply_group();
  ptx::cp_async_wait<1>();
  multiply_group();
  ptx::cp_async_wait<0>();
  multiply_group();

  put_sums<kChannels>(tile[0].part[warp], sum, 0, 0);
  __syncthreads();
  finish_group<T, kThreads>(p, t, plan.group, place, tile[0]);
}

const char* supports(const Problem& p) {
  if (p.stride2 || p.transposed) return "stride2 and transposed: its positions are those of x";
  if (p.l > kPositions) return "a sequence of more than 16 positions";
  if (!whole_rows(p, p.split > 0)) return "rows of x and w are no whole vectors of 16 bytes";
  const Plan plan = plan_of(p);
  if (plan.group.ranks == 0) return "a group of more channels than a cluster of blocks computes";
  return plan.smem_bytes() + static_cast<int>(sizeof(Tile)) + 1024 <= most_smem_bytes()
             ? nullptr
             : "x and the weights of 8 channels do not fit a block's shared memory";
}

void launch(const Problem& p, const Block::Tensors& t, void*, Stream stream) {
  const Plan plan = plan_of(p);
  const LaunchConfig config{.grid = plan.group.blocks(p),
                            .block = kThreads,
                            .dynamic_smem = static_cast<std::size_t>(plan.smem_bytes()),
                            .cluster = static_cast<unsigned>(plan.group.ranks),
                            .overlaps_previous = true};
  const auto enqueue = [&]<class T>(T) {
    ladder::launch(conv1d_block_v04_kernel<T>, config, stream, p, t, plan, XParts<T>(p, t.x, t.x_rest));
  };
  p.dtype == Dtype::bf16 ? enqueue(__nv_bfloat16{}) : enqueue(__half{});
}

}  // namespace
}  // namespace ladder::conv1d

LADDER_VERSION(ladder::conv1d::Block, {.launch = ladder::conv1d::launch,
                                       .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                       .supports = ladder::conv1d::supports,
                                       .min_arch = 90})
