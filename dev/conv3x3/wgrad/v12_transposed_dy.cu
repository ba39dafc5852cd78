// Idea:   wgmma in tf32. dy is transposed on its way to shared memory, pixels innermost, and is operand B of all nine taps; x
//         lies as the TMA brings it and is operand A, which may come from registers: each thread loads its elements from
//         [pixel][c], shifted by the tap. Three warpgroups, each a column of the filter: a row of the halo, loaded once, meets
//         three rows of dy, those of the column's three taps. dw's tile is transposed, 64 input x 64 output channels x 9.
// Parent: v11, for the tile, its halo and the clusters that add up sums; v05 is what runs tf32 otherwise.
// Why:    wgmma reads tf32 from shared memory with K innermost only, here the pixels, and v05's mma.sync has two thirds of its
//         rate and two loads for three multiplications. Here the tensor cores need 2304 clocks for a patch, and the data path
//         of shared memory and L1 1152 for B, 480 for A, 200 for x and 384 for dy: into L1, to registers, and back. Copies of
//         x under three shifts, transposed as well, would be 480 more. Limiter left: that path's 2216 clocks, and 147 KB of
//         sums a block.
// Needs:  sm_90a; c a multiple of 4, k at least 4; tf32.
//
// Orders of K, M and N. A sum does not depend on the order of its terms, nor a matrix product on the order of its rows,
// so these permutations are free:
// - K: the eight pixels of a row of a patch in the order 0 2 4 6 1 3 5 7, so that a warp's loads of A meet all banks
//   once.
// - M: rows g and g + 8 of a warp's sixteen are the input channels 2g and 2g + 1, one load of two words.
// - N: rows 2t and 2t + 1 of eight are the output channels t and t + 4, so that a warp's stores of sums meet all banks
//   once.

#include <algorithm>

#include "core/occupancy.h"
#include "dev/common/ring.h"
#include "dev/conv3x3/halo_patch.h"
#include "dev/conv3x3/wgrad_cluster.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/setmaxnreg.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kGroups = 3;  // consumer warpgroups: one for each column of the filter
constexpr int kTaps = 3;    // of a column
constexpr int kConsumerWarps = 4 * kGroups;
constexpr int kProducerWarps = 4;  // registers move between whole warpgroups
constexpr int kProducerThreads = kProducerWarps * 32;
constexpr int kThreads = (kConsumerWarps + kProducerWarps) * 32;
constexpr int kRegisters = 128;  // of every thread before and after the products
constexpr int kConsumerRegisters = 152;
constexpr int kProducerRegisters = 56;
static_assert(kGroups * kConsumerRegisters + kProducerRegisters <= (kGroups + 1) * kRegisters,
              "what they give is taken");

constexpr int kChunkChannels = kRowBytes / 4;                            // of x, a box of the TMA
constexpr int kViewBytes = kTileChannels / kChunkChannels * kHaloBytes;  // of x: chunks of [10 x 10 pixels][128 bytes]
constexpr int kHalfBytes = kTileChannels * kRowBytes;                    // of dy: [64 k][4 rows of 8 pixels]
constexpr int kStageBytes = kViewBytes + 2 * kHalfBytes;
constexpr int kStages = 5;
static_assert(kViewBytes % 1024 == 0 && kStageBytes % 1024 == 0, "whole swizzle patterns");
constexpr std::size_t kSmemBytes =
    std::size_t{kStages} * kStageBytes + 2 * kStages * sizeof(ptx::Mbarrier) + kTileChannels * sizeof(float);
static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");
static_assert(ClusterSums<kTaps>::kBytes <= kStages * kStageBytes, "the sums take the stages' place");

// Steps of a patch: a warpgroup multiplies one step's rows of the halo from registers while it loads those of the next
// step. The rows of each step make six products with rows of dy.
constexpr int kSteps = 4;
constexpr int kMaxRows = 3;
__host__ __device__ constexpr int first_row(int step) { return step == 0 ? 0 : step < kSteps ? 2 * step + 1 : kHalo; }

// Byte offsets of a lane's fragment of x in row 0 of the halo: two channels of an even pixel and of an odd one.
// even[row % 4] and odd[row % 4] are for other rows: the swizzle has four patterns, as rows are ten lines of memory
// apart.
struct FragmentOffsets {
  int even[4], odd[4];

  __device__ __forceinline__ FragmentOffsets(int warp, int lane, int column) {
    const int chunk = warp * 16 / kChunkChannels;
    const int byte = warp * 16 % kChunkChannels * 4 + lane / 4 * 8;
    const int line = chunk * kHaloPixels + column + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      even[i] = line * kRowBytes + (byte ^ (line + kHalo * i) % 8 * 16);
      odd[i] = (line + 1) * kRowBytes + (byte ^ (line + 1 + kHalo * i) % 8 * 16);
    }
  }

  __device__ __forceinline__ void load(const unsigned char* view, int row, std::uint32_t (&a)[4]) const {
    const unsigned char* const line = view + row * kHalo * kRowBytes;
    const auto first = *reinterpret_cast<const uint2*>(line + even[row % 4]);
    const auto second = *reinterpret_cast<const uint2*>(line + odd[row % 4]);
    a[0] = first.x, a[1] = first.y, a[2] = second.x, a[3] = second.y;
  }
};

// A producer thread's part of a patch of dy: an output channel, at every other pixel of each row. Four pixels are 16
// bytes of a line of shared memory; eight threads with neighbouring channels access all banks once. A warp's loads are
// whole lines of L1, whose data path is that of shared memory.
static_assert(kProducerThreads == 2 * kTileChannels);
struct DyPart {
  int parity;         // of its columns
  bool inside;        // its channel exists
  const float* from;  // its first element of the patch at 0, 0 of image 0
  unsigned to;        // its first 16 bytes in shared memory, from the stage's dy
  float4 pixels[kPatch];

  __device__ __forceinline__ DyPart(const Problem& p, const float* dy, int k0, int channel, int parity)
      : parity(parity), inside(k0 + channel < p.k), from(dy + parity * p.k + k0 + channel) {
    const int line = channel / 8 * 8 + channel % 4 * 2 + channel / 4 % 2;
    to = line * kRowBytes + (parity ^ line % 8) * 16;
  }

  __device__ __forceinline__ void fetch(const Problem& p, const PatchPosition& position) {
    const float* line = from + static_cast<long long>((position.image * p.h + position.row) * p.w + position.col) * p.k;
#pragma unroll
    for (int row = 0; row < kPatch; ++row, line += p.w * p.k) {
      const auto pixel = [&](int i) {
        return inside && position.row + row < p.h && position.col + parity + 2 * i < p.w ? line[2 * i * p.k] : 0.0f;
      };
      pixels[row] = {pixel(0), pixel(1), pixel(2), pixel(3)};
    }
  }

  // Stores the fetched pixels. A row of the patch is 32 bytes after the previous one, before the swizzle.
  __device__ __forceinline__ void store(unsigned char* dys) const {
#pragma unroll
    for (int row = 0; row < kPatch; ++row) {
      *reinterpret_cast<float4*>(dys + row / 4 * kHalfBytes + (to ^ row % 4 * 32)) = pixels[row];
    }
  }

  __device__ __forceinline__ float sum() const {
    float sum = 0;
#pragma unroll
    for (const float4& v : pixels) sum += (v.x + v.y) + (v.z + v.w);
    return sum;
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_wgrad_v12_kernel(Problem p, ClusterSplit split, const __grid_constant__ ptx::TensorMap x_map,
                             const float* dy, float* dw, float* dbias, float* partial) {
  LADDER_DYN_SMEM(smem);  // [stage]: x [2 chunks][10 x 10 pixels][128 bytes], dy [2 halves][64 k][128 bytes]
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(smem + kStages * kStageBytes);
  ptx::Mbarrier* const empty = full + kStages;
  auto* const odd_sums = reinterpret_cast<float*>(empty + kStages);  // [k], dbias's of odd columns

  const int tiles_c = ceil_div(p.c, kTileChannels);
  const int tiles_k = ceil_div(p.k, kTileChannels);
  const int rank = blockIdx.x % split.ranks;
  const int tile = blockIdx.x / split.ranks;
  const int c0 = tile % tiles_c * kTileChannels;
  const int k0 = tile / tiles_c % tiles_k * kTileChannels;
  const int cluster_idx = tile / tiles_c / tiles_k;
  const int begin = (cluster_idx * split.ranks + rank) * split.units_per_block;
  const int count = min(split.units_per_block, num_patches(p) - begin);  // not above 0: nothing to add
  const bool accumulates_bias_gradient = dbias && c0 == 0;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(full + i, 1 + kProducerWarps);
      ptx::mbarrier_init(empty + i, kConsumerWarps);
    }
    ptx::mbarrier_fence_init();
  }
  __syncthreads();
  ptx::grid_dependency_wait();

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int column = warp / 4;  // of the filter, a consumer's
  const bool consumes = warp < kConsumerWarps;
  const int channel = warp % 2 * 32 + lane;        // of k, a producer's
  const int parity = (warp - kConsumerWarps) / 2;  // of its columns of pixels
  float sum[kTaps][kTileChannels / 2];             // a consumer's, of the column's taps
  float bias_sum = 0;                              // a producer's, of its output channel

  if (consumes) {
    ptx::warpgroup_reg_alloc<kConsumerRegisters>();
    const FragmentOffsets x_fragment(warp % 4, lane, column);
    std::uint32_t a[2][kMaxRows][4];
    const auto stage_ptr = [&](int i) { return smem + stage_of<kStages>(i) * kStageBytes; };
#pragma unroll
    for (auto& tap : sum) {
#pragma unroll
      for (float& value : tap) value = 0;
    }
    if (count > 0) {
      ptx::mbarrier_wait(full, 0);
#pragma unroll
      for (int row = 0; row < first_row(1); ++row) x_fragment.load(smem, row, a[0][row]);
    }
    for (int i = 0; i < count; ++i) {
      const unsigned char* const view = stage_ptr(i);
      const std::uint64_t b = ptx::wgmma_descriptor(view + kViewBytes, 1024);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        ptx::wgmma_fence();
#pragma unroll
        for (int row = first_row(step); row < first_row(step + 1); ++row) {
#pragma unroll
          for (int r = 0; r < kTaps; ++r) {
            const int dy_row = row - r;
            if (dy_row < 0 || dy_row >= kPatch) continue;
            const int offset = dy_row / 4 * kHalfBytes + dy_row % 4 * 32;
            ptx::wgmma_m64_a_registers<float, kTileChannels>(sum[r], a[step % 2][row - first_row(step)],
                                                             b + offset / 16, true);
          }
        }
        ptx::wgmma_commit();
        // The step before this is done: its fragments' registers are free, and the stage after a patch's last.
        ptx::wgmma_wait<1>();
        if (step == 0 && i > 0 && lane == 0) ptx::mbarrier_arrive(empty + stage_of<kStages>(i - 1));
        const int next = (step + 1) % kSteps;
        const unsigned char* next_view = view;
        if (next == 0) {
          if (i + 1 == count) break;
          ptx::mbarrier_wait(full + stage_of<kStages>(i + 1), parity_of<kStages>(i + 1));
          next_view = stage_ptr(i + 1);
        }
#pragma unroll
        for (int row = first_row(next); row < first_row(next + 1); ++row) {
          x_fragment.load(next_view, row, a[next % 2][row - first_row(next)]);
        }
      }
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (auto& tap : sum) ptx::warpgroup_fence_operand(tap);
    ptx::warpgroup_reg_dealloc<kRegisters>();
  } else {
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    const bool elected = warp == kConsumerWarps && lane == 0;
    DyPart part(p, dy, k0, channel, parity);
    PatchPosition position = patch_position(p, begin);
    for (int i = 0; i < count; ++i, position.advance(p)) {
      unsigned char* const stage = smem + stage_of<kStages>(i) * kStageBytes;
      ptx::Mbarrier* const filled = full + stage_of<kStages>(i);
      part.fetch(p, position);
      // A fresh barrier lets a wait for the parity before its first phase pass.
      ptx::mbarrier_wait(empty + stage_of<kStages>(i), parity_of<kStages>(i) ^ 1);
      if (elected) {
        ptx::mbarrier_arrive_expect_tx(filled, kViewBytes);
        load_patch(stage, x_map, filled, position, c0);
        load_patch(stage + kHaloBytes, x_map, filled, position, c0 + kChunkChannels);
      }
      part.store(stage + kViewBytes);
      ptx::wgmma_fence_stores();
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(filled);
      if (accumulates_bias_gradient) bias_sum += part.sum();
    }
    if (parity == 1) odd_sums[channel] = bias_sum;
    ptx::warpgroup_reg_alloc<kRegisters>();
  }

  // Nobody reads the stages any more: the sums take their place.
  __syncthreads();
  ptx::grid_dependency_launch();
  auto* const sums = reinterpret_cast<float*>(smem);
  if (consumes) {
    const int c = warp % 4 * 16 + lane / 4 * 2;
#pragma unroll
    for (int r = 0; r < kTaps; ++r) {
#pragma unroll
      for (int j = 0; j < kTileChannels / 4; ++j) {
        const int k = j / 2 * 8 + j % 2 * 4 + lane % 4;
        float* const to = sums + (r * kTileChannels + k) * kSumsPitch<kColumns> + column * kTileChannels + c;
        const float* const pair = sum[r] + j / 2 * 4 + j % 2;
        *reinterpret_cast<float2*>(to) = {pair[0], pair[2]};
      }
    }
  } else if (parity == 0) {
    sums[ClusterSums<kTaps>::kBiasOffset + channel] = bias_sum + odd_sums[channel];
  }
  ptx::cluster_sync();

  const ClusterTile cluster_tile{.r0 = 0,
                                 .k0 = k0,
                                 .c0 = c0,
                                 .cluster = cluster_idx,
                                 .rank = rank,
                                 .accumulates_bias_gradient = accumulates_bias_gradient};
  store_cluster_sums<float, kTaps, kThreads>(p, split, cluster_tile, sums, dw, dbias, partial);
  // A block's memory is there for the others until they have read it.
  ptx::cluster_sync();
}

LaunchConfig config_of(const Problem& p, const ClusterSplit& split) {
  return {.grid = static_cast<unsigned>(num_patch_tiles(p) * split.clusters * split.ranks),
          .block = kThreads,
          .dynamic_smem = kSmemBytes,
          .cluster = static_cast<unsigned>(split.ranks),
          .overlaps_previous = true};
}

KernelPlan<Wgrad> plan_of(const Problem& p, const char* name, const ClusterSplit& split) {
  const bool single_cluster = split.clusters == 1;
  const auto bind = [p, split, single_cluster](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    BoundLaunch first = bind_launch(conv3x3_wgrad_v12_kernel, config_of(p, split), p, split, halo_map(p, t.x, p.c),
                                    static_cast<const float*>(t.dy), static_cast<float*>(t.dw), t.dbias, partial);
    if (single_cluster) return first;
    return in_order({std::move(first), bind_reduce<float>(p, {.splits = split.clusters}, partial, t)});
  };
  return {
      .name = name, .workspace_bytes = single_cluster ? 0 : partial_bytes(p, {.splits = split.clusters}), .bind = bind};
}

// The split that takes the least time: clusters of any size, in waves of as many as the card runs at once.
ClusterSplit split_of(const Problem& p) {
  constexpr double kPatchNs = 1400;  // 72 wgmmas of 32 clocks at some 1.7 GHz
  constexpr double kStartNs = 3000;
  constexpr double kExchangeNs = 1000 + kTaps * kTileChannels * kColumns * 4 / 40.0;  // at two thirds of the L2's rate
  constexpr double kSecondNs = 3000;  // of the kernel that adds partial sums
  const double partials_ns = 8.0 * partial_row(p) / 3000;
  const int patches = num_patches(p);
  ClusterSplit best{1, 1, patches};
  double best_ns = 0;
  for (int ranks = 1; ranks <= std::min(kMaxClusterBlocks, patches); ++ranks) {
    const int at_once = resident_clusters(conv3x3_wgrad_v12_kernel, config_of(p, {1, ranks, 0}));
    if (at_once == 0) continue;
    for (int clusters = 1; clusters * ranks <= patches; ++clusters) {
      if (clusters > 1 && clusters * num_patch_tiles(p) > at_once) break;
      const int patches_per_block = ceil_div(patches, clusters * ranks);
      double ns = ceil_div(clusters * num_patch_tiles(p), at_once) *
                  (kStartNs + patches_per_block * kPatchNs + (ranks > 1 ? kExchangeNs : 0));
      if (clusters > 1) ns += kSecondNs + clusters * partials_ns;
      if (best_ns == 0 || ns < best_ns) best = {clusters, ranks, patches_per_block}, best_ns = ns;
    }
  }
  return best;
}

// Returns the default plan first, then two for tests of small problems.
std::vector<KernelPlan<Wgrad>> plans(const Problem& p) {
  return {plan_of(p, "patches split over clusters", split_of(p)),
          plan_of(p, "patches in one piece", {1, 1, num_patches(p)}),
          plan_of(p, "patches split over two clusters of two", {2, 2, ceil_div(num_patches(p), 4)})};
}

const char* supports(const Problem& p) {
  if (p.k < 4) return "k is below 4: most of a tile would be padding";
  return p.c % 4 == 0 ? nullptr : "c is not a multiple of 16 bytes, which the TMA's strides must be";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Wgrad, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"patches split over clusters", "patches in one piece",
                                                       "patches split over two clusters of two"},
                                        .dtypes = {ladder::Dtype::tf32},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c a multiple of 4, k at least 4"})
