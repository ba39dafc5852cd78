// Partition of a row over threads that hold it in registers.
#pragma once

#include <algorithm>
#include <bit>

#include "core/ceil_div.h"
#include "core/device.h"
#include "core/occupancy.h"
#include "dev/common/wide.h"
#include "dev/softmax/softmax.h"

namespace ladder::softmax {

constexpr int kMaxValues = 32;  // per thread: with these a kernel fits 64 registers
constexpr int kMinValues = 8;   // per thread: one vector of 16-bit elements
constexpr int kBlockThreads = 256;
constexpr int kMaxThreads = 1024;
constexpr int kMaxWarps = kMaxThreads / 32;

struct RowPlan {
  int threads = 32;         // of a block that share a row: a power of two up to 32, or whole warps
  int ranks = 1;            // blocks that share a row: a cluster
  int values = kMaxValues;  // per thread, at most
};

enum class Holder { lanes, block, cluster };  // of a row, in registers

// Warps of the largest cluster.
constexpr int kMaxParts = kMaxClusterBlocks * kMaxWarps;

// Plan of rows that some lanes of a warp hold, several rows in a block. Fewer than 32 lanes have one vector each.
constexpr int kMaxElementsOfLanes = 32 * kMaxValues;
inline RowPlan plan_lanes(const Problem& p) {
  const int width = whole_vectors(p.n, p.dtype) ? 16 / static_cast<int>(size_of(p.dtype)) : 1;
  const int lanes = std::min<int>(32, std::bit_ceil(static_cast<unsigned>(p.n / width)));
  const int elements_per_lane = ceil_div(p.n, lanes);
  int values = kMinValues;
  while (values < elements_per_lane) values *= 2;
  return {.threads = lanes, .values = values};
}

// Plan of a row that `ranks` blocks hold.
inline RowPlan plan_blocks(int n, int ranks, int values = kMaxValues) {
  return {.threads = 32 * ceil_div(n, 32 * ranks * values), .ranks = ranks, .values = values};
}

// Plan of a row that as few blocks of at most kBlockThreads threads as possible hold: a cluster of two at least, or the
// largest cluster, of larger blocks, if that is not enough.
inline RowPlan plan_cluster(int n, int values = kMaxValues) {
  int ranks = 2;
  while (ranks < kMaxClusterBlocks && plan_blocks(n, ranks, values).threads > kBlockThreads) ranks *= 2;
  return plan_blocks(n, ranks, values);
}

// Launch configuration of a grid whose blocks hold the problem's rows by the plan.
inline LaunchConfig config_of(const Problem& p, const RowPlan& plan, Holder holder) {
  const bool lanes = holder == Holder::lanes;
  return {.grid = lanes ? stream_blocks(std::int64_t{p.m} * plan.threads, kBlockThreads, 1)
                        : static_cast<unsigned>(p.m * plan.ranks),
          .block = static_cast<unsigned>(lanes ? kBlockThreads : plan.threads),
          .cluster = static_cast<unsigned>(plan.ranks),
          .overlaps_previous = true};
}

// Calls f(T{}, width, values), the last two integral constants.
template <int kMax = kMaxValues, class F>
void dispatch_values(const Problem& p, int values, F&& f) {
  dispatch_width(p.dtype, whole_vectors(p.n, p.dtype), [&](auto element, auto width) {
    if (values == kMinValues) return f(element, width, std::integral_constant<int, kMinValues>{});
    if (values == 2 * kMinValues) return f(element, width, std::integral_constant<int, 2 * kMinValues>{});
    if constexpr (kMax > 2 * kMinValues) f(element, width, std::integral_constant<int, kMax>{});
  });
}

}  // namespace ladder::softmax
