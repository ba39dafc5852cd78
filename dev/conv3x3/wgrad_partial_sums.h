// wgrad's partial sums, and the kernel that adds them.
//
// A block owns a tile of outputs and a range of the pixels. It writes its sums as fp32 into the workspace, row `split` of
// [splits][partial_row(p)]: dw [k][3][3][c], then dbias [k], each padded to 16 bytes. A second kernel adds the rows. No
// atomics: the same sums in the same order every time, so results are equal bit for bit.
#pragma once

#include <type_traits>

#include "dev/common/parameter_type.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {

__host__ __device__ constexpr int padded(int count) { return ceil_div(count, 4) * 4; }
__host__ __device__ inline int bias_offset(const Problem& p) { return padded(9 * p.c * p.k); }
__host__ __device__ inline int partial_row(const Problem& p) { return bias_offset(p) + padded(p.k); }

// Split i has units [i * units_per_split, (i + 1) * units_per_split); a version counts pixels or patches.
struct Split {
  int splits = 1;
  int units_per_split = 1;
};

inline std::size_t partial_bytes(const Problem& p, const Split& split) {
  return sizeof(float) * split.splits * partial_row(p);
}

// Adds rows of partial sums: a block of 256 threads takes runs of four sums, with kGroups threads for each, which add every
// kGroups-th row and then each other's sums, in order. Only the threads of group 0 return the run's sums. As many groups as
// there are rows to share out, up to eight: more would have nothing to load.
constexpr int kReduceThreads = 256;
constexpr int kMaxReduceGroups = 8;
template <int kGroups>
constexpr int kReduceRuns = kReduceThreads / kGroups;

struct RowSums {
  int index;    // of the first sum in its row
  bool holder;  // whether this thread has them
  float4 sum;
};

template <int kGroups>
__device__ __forceinline__ RowSums sum_rows(const float* partial, int rows, int row) {
  LADDER_SHARED(float4, sums, [kGroups][kReduceRuns<kGroups>]);
  const int run = threadIdx.x % kReduceRuns<kGroups>;
  const int group = threadIdx.x / kReduceRuns<kGroups>;
  const int index = (blockIdx.x * kReduceRuns<kGroups> + run) * 4;

  float4 sum{0, 0, 0, 0};
  if (index < row) {
#pragma unroll 8
    for (int i = group; i < rows; i += kGroups) {
      const float4 v = *reinterpret_cast<const float4*>(partial + static_cast<long long>(i) * row + index);
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
  }
  if constexpr (kGroups > 1) {
    sums[group][run] = sum;
    __syncthreads();
  }
  if (group > 0 || index >= row) return {index, false, sum};
#pragma unroll
  for (int g = 1; g < kGroups; ++g) {
    const float4 v = sums[g][run];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  return {index, true, sum};
}

// Calls f(std::integral_constant<int, kGroups>{}) with the groups for `rows` rows.
template <class F>
auto with_reduce_groups(int rows, F&& f) {
  if (rows >= kMaxReduceGroups) return f(std::integral_constant<int, kMaxReduceGroups>{});
  if (rows >= 4) return f(std::integral_constant<int, 4>{});
  if (rows >= 2) return f(std::integral_constant<int, 2>{});
  return f(std::integral_constant<int, 1>{});
}

template <int kGroups>
unsigned reduce_blocks(int row) {
  return static_cast<unsigned>(ceil_div(row, 4 * kReduceRuns<kGroups>));
}

template <class T, int kGroups, class P>
__global__ void __launch_bounds__(kReduceThreads)
    conv3x3_wgrad_reduce_kernel(Problem p, int splits, const float* partial, T* dw, P* dbias) {
  ptx::grid_dependency_wait();
  const auto [index, holder, sum] = sum_rows<kGroups>(partial, splits, partial_row(p));
  ptx::grid_dependency_launch();
  if (!holder) return;
  const float values[4] = {sum.x, sum.y, sum.z, sum.w};
  const int weights = 9 * p.c * p.k;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int bias_index = index + i - bias_offset(p);
    if (index + i < weights) dw[index + i] = from_float<T>(values[i]);
    if (dbias && bias_index >= 0 && bias_index < p.k) dbias[bias_index] = from_float<P>(values[i]);
  }
}

template <class T>
BoundLaunch bind_reduce(const Problem& p, const Split& split, const float* partial, const Wgrad::Tensors& t) {
  return with_reduce_groups(split.splits, [&](auto groups) {
    return with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      return bind_launch(
          conv3x3_wgrad_reduce_kernel<T, groups, P>,
          {.grid = reduce_blocks<groups>(partial_row(p)), .block = kReduceThreads, .overlaps_previous = true}, p,
          split.splits, partial, static_cast<T*>(t.dw), typed<P>(t.dbias));
    });
  });
}

template <class T>
void launch_reduce(const Problem& p, const Split& split, const float* partial, const Wgrad::Tensors& t, Stream stream) {
  bind_reduce<T>(p, split, partial, t)(stream);
}

}  // namespace ladder::conv3x3
