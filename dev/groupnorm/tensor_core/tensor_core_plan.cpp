#include "dev/groupnorm/tensor_core/tensor_core_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/backend.h"
#include "core/ceil_div.h"
#include "core/occupancy.h"

namespace ladder::groupnorm::tensor_core {
namespace {

// The multiplier of divided(), 2^31 / b rounded up: too large by less than a b / 2^31 < 1 / b for a and b up to 2^14.
unsigned divisor(int b) { return ((1u << 31) + b - 1) / b; }

// The mean's square may be this many variances, r. If sums of |x| and of x^2 have relative errors of e 2^-24, the variance
// gets 1 + r of them from its sum of squares and 2 sqrt(r (1 + r)) from the mean, and some 2 + 4 r roundings: half of that
// is rstd's, (1.5 e + 2) r + e + 1 of 2^-24 at most, where the reference allows 1 + 8 sqrt(m). A chain of s matrix products
// truncates s times while the sums grow: e = s, or 2.5 s where products of 22 bits are cut as well. z loses
// 2 sqrt(r) + sqrt(1 + r) e of 2^-24 deviations, which an fp32 y would show (there are no products then, and e is that of
// rounded sums): hence the least of that, a bound for small groups and a constant.
float max_mean_ratio_of(const Problem& p, const TensorCorePlan& plan) {
  const float most = p.dtype == Dtype::f32 ? 4 : 16;
  const float root = std::sqrt(static_cast<float>(p.group_size()));
  const float e = 2.5f * static_cast<float>(ceil_div(plan.tiles_per_block, 2 * plan.column_parts));
  return std::max(std::min({most, root / 4, (8 * root - e) / (1.5f * e + 2)}), 0.0f);
}

int blocks_of(const Problem& p, const TensorCorePlan& plan) { return p.n * (p.c / plan.channels) << plan.log_cluster; }

// A warp for each column, or several: then all have the same number of tiles to add up. A thread's fixed work pays only with
// some vectors for each; but an SM with few blocks needs enough warps to overlap their latencies. 0: a row is too wide.
int threads_of(const Problem& p, const TensorCorePlan& plan, const TuningParameters& tuning) {
  constexpr int kGoodVectors = 16;  // of a thread
  const int blocks_of_sm = ceil_div(blocks_of(p, plan), backend::device().num_sms);
  const int good =
      std::max(plan.pixels_per_block * plan.row_vectors / kGoodVectors, tuning.good_threads / blocks_of_sm);
  const int step = 32 * plan.row_vectors <= std::min(std::max(good, tuning.column_threads), kMaxThreads)
                       ? 32 * plan.row_vectors
                       : thread_step(plan);
  if (step > kMaxThreads) return 0;
  return std::max(std::min(good, kMaxThreads) / step * step, step);
}

}  // namespace

std::optional<TensorCorePlan> chunk_of(const Problem& p, int groups) {
  const int channels_per_group = p.channels_per_group();
  const int bytes = groups * channels_per_group * static_cast<int>(size_of(p.dtype));
  if (p.g % groups != 0 || bytes % 16 != 0) return {};
  TensorCorePlan plan{.channels = groups * channels_per_group,
                      .groups = groups,
                      .channels_per_group = channels_per_group,
                      .row_vectors = bytes / 16};
  plan.swizzle_shift = 3 - std::min(std::countr_zero(static_cast<unsigned>(plan.row_vectors)), 3);
  return plan;
}

void divide_pixels(const Problem& p, int log_cluster, TensorCorePlan& plan) {
  plan.log_cluster = log_cluster;
  plan.pixels_per_block = ceil_div(p.pixels(), 1 << log_cluster);
  plan.tiles_per_block = ceil_div(plan.pixels_per_block, kTile);
}

void complete(const Problem& p, TensorCorePlan& plan) {
  const int warps = plan.threads / 32;
  plan.column_parts = std::min(warps / std::gcd(warps, plan.row_vectors), plan.tiles_per_block);
  plan.reciprocal_row = divisor(plan.row_vectors);
  plan.reciprocal_width = divisor(plan.channels_per_group);
  plan.inverse_m = static_cast<float>(1.0 / static_cast<double>(p.group_size()));
  plan.max_mean_ratio = max_mean_ratio_of(p, plan);
}

int thread_step(const TensorCorePlan& plan) {
  return std::lcm(plan.swizzle_shift < 3 ? 8 * plan.row_vectors : plan.row_vectors, 32);
}

std::int64_t slab_bytes(const TensorCorePlan& plan) {
  return std::int64_t{16} * plan.row_vectors * kTile * plan.tiles_per_block;
}

// The slab with the widest rows of up to 128 bytes, four sectors of every pixel, else with the narrowest above. A cluster is as
// small as leaves a block at most kGoodBytes and, as a version's tuning asks for it, gives an SM kGoodBlocks blocks. If clusters
// alone cannot do that, narrower rows do. All fitted to sweeps of every plan at seven shapes on an H200: what this chooses is
// the best of them or within 4 % of it.
TensorCorePlan plan_of(const Problem& p, const TuningParameters& tuning) {
  constexpr int kGoodRow = 128 / 16;
  constexpr int kMinRow = 64 / 16;
  constexpr int kGoodBytes = 64 << 10;
  constexpr int kMaxBytes = 100 << 10;  // so that two blocks fit an SM
  constexpr int kGoodBlocks = 3;        // of an SM
  constexpr int kMaxLogCluster = std::bit_width(static_cast<unsigned>(kMaxClusterBlocks)) - 1;
  TensorCorePlan best;
  for (int groups = 1; groups <= p.g; ++groups) {
    std::optional<TensorCorePlan> chunk = chunk_of(p, groups);
    if (!chunk) continue;
    TensorCorePlan& plan = *chunk;
    if (best.channels > 0 && plan.row_vectors > kGoodRow) break;
    bool even = false;
    for (int log_cluster = 0; log_cluster <= kMaxLogCluster; ++log_cluster) {
      divide_pixels(p, log_cluster, plan);
      even =
          1 << log_cluster < tuning.least_even_cluster || blocks_of(p, plan) >= kGoodBlocks * backend::device().num_sms;
      const bool cut_further =
          slab_bytes(plan) > kGoodBytes || (!even && plan.pixels_per_block / 2 >= tuning.least_pixels);
      if (!cut_further) break;
    }
    plan.threads = threads_of(p, plan, tuning);
    if (plan.threads == 0 || slab_bytes(plan) > kMaxBytes) continue;
    if (!even && best.row_vectors >= kMinRow) break;
    complete(p, plan);
    best = plan;
  }
  return best;
}

const char* refusal(const Problem& p, const TensorCorePlan& plan) {
  constexpr int kMaxImages = 65535;  // of a grid's second dimension
  if (p.n > kMaxImages) return "more images than a grid has rows";
  if (p.split * size_of(p.dtype) % 16 != 0) return "the first part of x is no whole vectors of 16 bytes";
  if (plan.channels > 0) return nullptr;
  return "no number of groups is whole 16-byte vectors that fit a cluster and 384 threads";
}

}  // namespace ladder::groupnorm::tensor_core
