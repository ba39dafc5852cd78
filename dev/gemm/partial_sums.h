// Reduction split over blocks, for few outputs with long sums. Each block writes its partial sums as fp32 into the
// workspace, row `split` of [splits][row]; a second kernel adds the rows. There are no atomics: the order of the
// additions is fixed, so that results are equal bit for bit. A single split needs no workspace: its blocks finish the
// outputs themselves.
#pragma once

#include <type_traits>

#include "dev/common/split.h"
#include "dev/gemm/epilogue.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::gemm {

// Number of sums of one split, padded such that every row starts at a multiple of 16 bytes.
__host__ __device__ constexpr long long padded(long long count) { return (count + 3) / 4 * 4; }

// Address of element `index` of `out`, a T* or a ConcatOperand<T>, in row-major order with `cols` columns.
template <class Out>
__device__ __forceinline__ auto element_at(const Out& out, long long index, int cols) {
  if constexpr (std::is_pointer_v<Out>) {
    return out + index;
  } else {
    return element_at(out, index / cols, static_cast<int>(index % cols), cols);
  }
}

constexpr int kReduceThreads = 256;

// Add the rows of partial sums. A block takes runs of four sums, with kGroups threads for each run: a thread adds every
// kGroups-th row, then the run's first thread adds the others' sums, in order. kGroups is 2, 4 or 8, the largest that
// is at most `splits`. `out`, a T* or a ConcatOperand<T>, has `count` elements in rows of `cols`; after them a row of
// partial sums may hold, from padded(count) on, those of `dbias` [bias_count].
template <class T, class P, int kGroups, class Out>
__global__ void __launch_bounds__(kReduceThreads)
    gemm_reduce_kernel(int splits, const float* partial, long long count, int cols, Epilogue<T, P> epilogue, Out out,
                       int bias_count, P* dbias) {
  constexpr int kRuns = kReduceThreads / kGroups;
  LADDER_SHARED(float4, sums, [kGroups][kRuns]);
  const int run = threadIdx.x % kRuns;
  const int group = threadIdx.x / kRuns;
  const long long row = padded(count) + padded(bias_count);
  const long long index = (blockIdx.x * static_cast<long long>(kRuns) + run) * 4;

  ptx::grid_dependency_wait();
  float4 sum{0, 0, 0, 0};
  if (index < row) {
#pragma unroll 8
    for (int i = group; i < splits; i += kGroups) {
      const float4 v = *reinterpret_cast<const float4*>(partial + i * row + index);
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
  }
  ptx::grid_dependency_launch();
  sums[group][run] = sum;
  __syncthreads();
  if (group > 0 || index >= row) return;
#pragma unroll
  for (int g = 1; g < kGroups; ++g) {
    const float4 v = sums[g][run];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const long long element_idx = index + i;
    const long long bias_idx = element_idx - padded(count);
    if (element_idx < count)
      *element_at(out, element_idx, cols) =
          from_float<T>(epilogue(values[i], static_cast<int>(element_idx % cols), element_idx));
    if (bias_idx >= 0 && bias_idx < bias_count) dbias[bias_idx] = from_float<P>(values[i]);
  }
}

inline std::size_t partial_bytes(const Split& split, long long count, int bias_count = 0) {
  return split.splits == 1 ? 0 : sizeof(float) * split.splits * (padded(count) + padded(bias_count));
}

template <class T, class P, class Out>
BoundLaunch bind_reduce(const Split& split, const float* partial, long long count, int cols,
                        const Epilogue<T, P>& epilogue, const Out& out, int bias_count = 0, P* dbias = nullptr) {
  const long long runs = (padded(count) + padded(bias_count)) / 4;
  const auto bind = [&](auto groups) {
    constexpr int kRuns = kReduceThreads / decltype(groups)::value;
    return bind_launch(
        gemm_reduce_kernel<T, P, decltype(groups)::value, Out>,
        {.grid = static_cast<unsigned>((runs + kRuns - 1) / kRuns), .block = kReduceThreads, .overlaps_previous = true},
        split.splits, partial, count, cols, epilogue, out, bias_count, dbias);
  };
  if (split.splits >= 8) return bind(std::integral_constant<int, 8>{});
  if (split.splits >= 4) return bind(std::integral_constant<int, 4>{});
  return bind(std::integral_constant<int, 2>{});
}

// Returns `first` alone, or followed by the kernel that adds its partial sums.
template <class T, class P, class Out>
BoundLaunch with_reduce(const Split& split, BoundLaunch first, const float* partial, long long count, int cols,
                        const Epilogue<T, P>& epilogue, const Out& out, int bias_count = 0, P* dbias = nullptr) {
  if (split.splits == 1) return first;
  return in_order({std::move(first), bind_reduce(split, partial, count, cols, epilogue, out, bias_count, dbias)});
}

}  // namespace ladder::gemm
