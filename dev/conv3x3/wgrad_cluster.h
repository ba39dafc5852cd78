// A cluster of blocks splits the patches of a tile of wgrad. Each block has its sums in shared memory, adds up a part
// of the tile over the cluster, in the order of ranks, and stores that part. If several clusters split the patches of a
// tile, each stores partial sums, which the kernel of wgrad_partial_sums.h adds up.
#pragma once

#include "dev/common/cluster_split.h"
#include "dev/common/cluster_sums.h"
#include "dev/common/quads.h"
#include "dev/conv3x3/wgrad_partial_sums.h"
#include "dev/conv3x3/wgrad_patch.h"
#include "dev/ptx/tma.h"

namespace ladder::conv3x3 {

inline constexpr int kColumns = 3 * kTileChannels;  // of a row of the filter: (s, c)

// Layout of a block's sums in shared memory: [filter row][output channel][kColumns, padded], then dbias [output
// channel].
template <int kFilterRows>
struct ClusterSums {
  static constexpr int kRows = kFilterRows * kTileChannels;
  static constexpr int kBiasOffset = kRows * kSumsPitch<kColumns>;
  static constexpr int kBytes = (kBiasOffset + kTileChannels) * static_cast<int>(sizeof(float));
};

// Position of a block: its first row of the filter, its tile of channels, its cluster and its rank.
struct ClusterTile {
  int r0;
  int k0;
  int c0;
  int cluster;
  int rank;
  bool accumulates_bias_gradient;
};

// Adds up the sums of the cluster's blocks and stores dw and dbias, or partial sums. Called by all kThreads threads of
// all blocks of the cluster, after a cluster barrier.
template <class T, int kFilterRows, int kThreads, class P>
__device__ __forceinline__ void store_cluster_sums(const Problem& p, const ClusterSplit& split, const ClusterTile& tile,
                                                   float* sums, T* dw, P* dbias, float* partial) {
  constexpr int kQuadsPerRow = kColumns / 4;
  const bool single_cluster = split.clusters == 1;
  float* const partial_sums = partial + static_cast<long long>(tile.cluster) * partial_row(p);
  for (int i = threadIdx.x + tile.rank * kThreads; i < ClusterSums<kFilterRows>::kRows * kQuadsPerRow;
       i += split.ranks * kThreads) {
    const int row = i / kQuadsPerRow;  // (r, k)
    const int column = i % kQuadsPerRow * 4;
    const int k = tile.k0 + row % kTileChannels;
    const int c = tile.c0 + column % kTileChannels;
    if (k >= p.k || c >= p.c) continue;
    auto* const local_sums = reinterpret_cast<float4*>(sums + row * kSumsPitch<kColumns> + column);
    const float4 v = sum_over_cluster(local_sums, split.ranks);
    const int index = ((k * 3 + tile.r0 + row / kTileChannels) * 3 + column / kTileChannels) * p.c + c;
    if (single_cluster) {
      *reinterpret_cast<Quad<T>*>(dw + index) = pack_quad<T>({v.x, v.y, v.z, v.w});
    } else {
      *reinterpret_cast<float4*>(partial_sums + index) = v;
    }
  }
  const int k = tile.k0 + static_cast<int>(threadIdx.x);
  if (tile.accumulates_bias_gradient && tile.rank == 0 && threadIdx.x < kTileChannels && k < p.k) {
    void* const bias_to = single_cluster ? static_cast<void*>(dbias) : partial_sums + bias_offset(p);
    const float sum = sum_over_cluster(sums + ClusterSums<kFilterRows>::kBiasOffset + threadIdx.x, split.ranks);
    store_gradient<P>(bias_to, k, sum, single_cluster);
  }
}

// A version's kernel and its launch parameters.
template <class T, class P>
struct ClusterKernel {
  void (*kernel)(Problem, ClusterSplit, ptx::TensorMap, ptx::TensorMap, T*, P*, float*);
  int threads;
  std::size_t smem_bytes;
  int tiles;
  int view_rows;  // of x in a box: 8, or all 10 of the halo
};

template <class T, class P>
KernelPlan<Wgrad> cluster_plan(const Problem& p, const char* name, const ClusterKernel<T, P>& kernel,
                               const ClusterSplit& split) {
  const auto bind = [p, kernel, split](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const auto x_map = ptx::make_tensor_map(p.dtype, t.x, {size(p.c), size(p.w), size(p.h), size(p.n)},
                                            {kTileChannels, kHalo, static_cast<std::uint32_t>(kernel.view_rows), 1});
    const auto dy_map = ptx::make_tensor_map(p.dtype, t.dy, {size(p.k), size(p.w), size(p.h), size(p.n)},
                                             {kTileChannels, kPatch, kPatch, 1});
    const LaunchConfig config = {.grid = static_cast<unsigned>(kernel.tiles * split.clusters * split.ranks),
                                 .block = static_cast<unsigned>(kernel.threads),
                                 .dynamic_smem = kernel.smem_bytes,
                                 .cluster = static_cast<unsigned>(split.ranks),
                                 .overlaps_previous = true};
    BoundLaunch first =
        bind_launch(kernel.kernel, config, p, split, x_map, dy_map, static_cast<T*>(t.dw), typed<P>(t.dbias), partial);
    if (split.clusters == 1) return first;
    return in_order({std::move(first), bind_reduce<T>(p, {.splits = split.clusters}, partial, t)});
  };
  return {.name = name,
          .workspace_bytes = split.clusters == 1 ? 0 : partial_bytes(p, {.splits = split.clusters}),
          .bind = bind};
}

// Returns `chosen` as the default plan, and two more for tests of small problems.
template <class T, class P>
std::vector<KernelPlan<Wgrad>> cluster_plans(const Problem& p, const ClusterKernel<T, P>& kernel,
                                             const ClusterSplit& chosen) {
  return {cluster_plan(p, "patches split over clusters", kernel, chosen),
          cluster_plan(p, "patches in one piece", kernel, {1, 1, num_patches(p)}),
          cluster_plan(p, "patches split over two clusters of two", kernel, {2, 2, ceil_div(num_patches(p), 4)})};
}

}  // namespace ladder::conv3x3
