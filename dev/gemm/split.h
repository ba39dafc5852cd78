// Where outputs are few and sums long, the reduction is split over blocks. Each writes its partial sums as fp32 into the
// workspace, row `split` of [splits][row]; a second kernel adds the rows. No atomics: the same sums in the same order every
// time, so results are equal bit for bit. A single split needs no workspace: its blocks finish the outputs themselves.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/backend.h"
#include "dev/gemm/epilogue.h"

namespace ladder::gemm {

// Split i has units i * each to (i + 1) * each - 1 of the reduction, a unit being a step of the kernel's loop.
struct Split {
  int splits = 1;
  int each = 1;
};

// What a version's block costs, roughly, to weigh idle SMs against more partial sums.
struct BlockCost {
  double unit_ns;    // a unit's loads and multiplications, if the block had what an SM gives to all of its blocks
  double finish_ns;  // its stores, likewise
  double start_ns;   // before its first multiplication and after its last, whoever else is on the SM
  int blocks_per_sm;
  int busy_blocks = 1;  // that it takes to keep an SM busy
};

struct SplitPlan {
  Split split;
  double ns;  // estimated
};

constexpr double kReduceNs = 1500;           // of the second kernel, whatever it adds
constexpr double kPartialBytesPerNs = 3000;  // of partial sums through L2

// Sums of one split, padded such that every row starts at 16 bytes.
__host__ __device__ constexpr long long padded(long long count) { return (count + 3) / 4 * 4; }

// The split of `units` among the blocks of each of `tiles` tiles that takes the least time: whole waves of blocks, and
// every split's row of partial sums written and read once more.
inline SplitPlan plan_split(double row, int units, int tiles, const BlockCost& cost) {
  constexpr int kMaxWaves = 3;
  const int num_sms = backend::device().num_sms;
  const int slots = num_sms * cost.blocks_per_sm;
  SplitPlan best{};
  for (int splits = 1; splits <= units && (splits == 1 || (splits - 1.0) * tiles < kMaxWaves * slots); ++splits) {
    const int each = ceil_div(units, splits);
    if (ceil_div(units, each) != splits) continue;  // a split would be empty
    const int blocks = splits * tiles;
    const int sharing = std::max(cost.busy_blocks, std::min(cost.blocks_per_sm, ceil_div(blocks, num_sms)));
    const double waves = std::max(1.0, (double(blocks) / slots + ceil_div(blocks, slots)) / 2);
    double ns = waves * (cost.start_ns + sharing * (each * cost.unit_ns + cost.finish_ns));
    if (splits > 1) ns += kReduceNs + splits * 8 * row / kPartialBytesPerNs;
    if (splits == 1 || ns < best.ns) best = {{splits, each}, ns};
  }
  return best;
}

// Which of a version's tiles takes the least time.
template <std::size_t kCount>
std::size_t fastest(const SplitPlan (&tiles)[kCount]) {
  return std::min_element(tiles, tiles + kCount, [](const SplitPlan& a, const SplitPlan& b) { return a.ns < b.ns; }) -
         tiles;
}

inline Split whole(int units) { return {1, units}; }

// Two splits, or one where there is a single step: what tests of small problems run.
inline Split halves(int units) { return {ceil_div(units, ceil_div(units, 2)), ceil_div(units, 2)}; }

constexpr int kReduceThreads = 256;

// A block takes runs of four sums, with kGroups threads for each, which add every kGroups-th row and then each other's
// sums, in order: as many groups as there are rows to share out, up to eight. `out`, a T* or a SideBySide<T>, has `count`
// elements in rows of `cols`; behind them a row may hold, from padded(count) on, the sums of `dbias` [bias_count].
template <class T, int kGroups, class Out>
__global__ void __launch_bounds__(kReduceThreads)
    gemm_reduce_kernel(int splits, const float* partial, long long count, int cols, Epilogue<T> epilogue, Out out,
                       int bias_count, float* dbias) {
  constexpr int kRuns = kReduceThreads / kGroups;
  LADDER_SHARED(float4, sums, [kGroups][kRuns]);
  const int run = threadIdx.x % kRuns;
  const int group = threadIdx.x / kRuns;
  const long long row = padded(count) + padded(bias_count);
  const long long index = (blockIdx.x * static_cast<long long>(kRuns) + run) * 4;

  float4 sum{0, 0, 0, 0};
  if (index < row) {
#pragma unroll 8
    for (int i = group; i < splits; i += kGroups) {
      const float4 v = *reinterpret_cast<const float4*>(partial + i * row + index);
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
  }
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
    const long long at = index + i;
    const long long bias_at = at - padded(count);
    if (at < count) *element_at(out, at, cols) = from_float<T>(epilogue(values[i], static_cast<int>(at % cols), at));
    if (bias_at >= 0 && bias_at < bias_count) dbias[bias_at] = values[i];
  }
}

inline std::size_t partial_bytes(const Split& split, long long count, int bias_count = 0) {
  return split.splits == 1 ? 0 : sizeof(float) * split.splits * (padded(count) + padded(bias_count));
}

template <class T, class Out>
BoundLaunch bind_reduce(const Split& split, const float* partial, long long count, int cols,
                        const Epilogue<T>& epilogue, const Out& out, int bias_count = 0, float* dbias = nullptr) {
  const long long runs = (padded(count) + padded(bias_count)) / 4;
  const auto bind = [&](auto groups) {
    constexpr int kRuns = kReduceThreads / decltype(groups)::value;
    return bind_launch(gemm_reduce_kernel<T, decltype(groups)::value, Out>,
                       {.grid = static_cast<unsigned>((runs + kRuns - 1) / kRuns), .block = kReduceThreads},
                       split.splits, partial, count, cols, epilogue, out, bias_count, dbias);
  };
  if (split.splits >= 8) return bind(std::integral_constant<int, 8>{});
  if (split.splits >= 4) return bind(std::integral_constant<int, 4>{});
  return bind(std::integral_constant<int, 2>{});
}

// `first` alone, or with the sum of its partial sums behind it.
template <class T, class Out>
BoundLaunch with_reduce(const Split& split, BoundLaunch first, const float* partial, long long count, int cols,
                        const Epilogue<T>& epilogue, const Out& out, int bias_count = 0, float* dbias = nullptr) {
  if (split.splits == 1) return first;
  return in_order({std::move(first), bind_reduce<T>(split, partial, count, cols, epilogue, out, bias_count, dbias)});
}

}  // namespace ladder::gemm
