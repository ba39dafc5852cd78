// Shared memory of a block (v09 and later): the slab, then the sums and coefficients of its channels.
#pragma once

#include <cstddef>

#include "core/device.h"
#include "dev/groupnorm/tensor_core/tensor_core_plan.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::groupnorm::tensor_core {

__host__ __device__ inline int cluster_of(const TensorCorePlan& plan) { return 1 << plan.log_cluster; }
__host__ __device__ inline int vectors_of(const TensorCorePlan& plan) {
  return plan.tiles_per_block * kTile * plan.row_vectors;
}

// Returns a / b for a and b up to 2^14; `by` is the plan's multiplier for b.
__device__ __forceinline__ int divided(int a, unsigned by) { return static_cast<int>(__umulhi(2 * a, by)); }

// Index of a pixel's vector in the slab. The swizzle puts 8 successive pixels of one column, and any 8 successive
// vectors, into different banks: it XORs as many low bits of the column as the row has factors of two, at most 3.
// plan.swizzle_shift is 3 minus their number. Pixels that are 8 apart have the same swizzle.
__device__ __forceinline__ int swizzled(const TensorCorePlan& plan, int pixel, int column) {
  return pixel * plan.row_vectors + (column ^ ((pixel & 7) >> plan.swizzle_shift));
}

// Shared memory after the slab. A block without a cluster does not use ranks and arrived.
struct TensorCoreSums {
  float2* partial;         // [column_parts][channels]
  float2* ranks;           // [2][cluster][groups], each block's sums: about zero, then about pivots
  ptx::Mbarrier* arrived;  // [2]
  float* scale;            // [channels]
  float* shift;            // [channels]
  float* pivot;            // [channels]

  __device__ __forceinline__ TensorCoreSums(unsigned char* smem, const TensorCorePlan& plan)
      : partial(reinterpret_cast<float2*>(smem + vectors_of(plan) * 16)),
        ranks(partial + plan.column_parts * plan.channels),
        arrived(reinterpret_cast<ptx::Mbarrier*>(ranks + 2 * cluster_of(plan) * plan.groups)),
        scale(reinterpret_cast<float*>(arrived + 2)),
        shift(scale + plan.channels),
        pivot(shift + plan.channels) {}
};

inline std::size_t sums_bytes(const TensorCorePlan& plan) {
  return sizeof(float2) * (plan.column_parts * plan.channels + 2 * cluster_of(plan) * plan.groups) +
         2 * sizeof(ptx::Mbarrier) + 3 * sizeof(float) * plan.channels;
}

inline LaunchConfig config_of(const Problem& p, const TensorCorePlan& plan) {
  const auto cluster = static_cast<unsigned>(cluster_of(plan));
  return {.grid = {static_cast<unsigned>(p.c / plan.channels) * cluster, static_cast<unsigned>(p.n)},
          .block = {static_cast<unsigned>(plan.row_vectors), static_cast<unsigned>(plan.threads / plan.row_vectors)},
          .dynamic_smem = std::size_t{16} * vectors_of(plan) + sums_bytes(plan),
          .cluster = cluster,
          .overlaps_previous = true};
}

}  // namespace ladder::groupnorm::tensor_core
