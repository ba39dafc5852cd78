#include "dev/groupnorm/dz/dz_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/occupancy.h"

namespace ladder::groupnorm::resident_dz {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kQuad = 4;
constexpr int kLogWarp = 5;

int element_bytes(const Problem& p) { return static_cast<int>(size_of(p.dtype)); }

Turns turns_of(const Problem& p, const DzPlan& plan, const Needs& needs) {
  if (double(plan.pixels_per_block) * plan.chunk * (element_bytes(p) + 4) > most_smem_bytes())
    return {};  // smem_bytes() could overflow an int
  return ladder::turns_of(p.n * (p.c / plan.chunk), plan.cluster(), plan.threads(), smem_bytes(p, plan, needs),
                          needs.threads_per_sm);
}

// Time in ns that an SM's memory traffic takes: its `blocks` blocks read x and dy and write dx. They do so in rows, a
// pixel's channels of a chunk; a row of less than a line leaves bytes of it unused. `line`: see Costs.
double traffic_ns(const Problem& p, const DzPlan& plan, double blocks, double line) {
  constexpr double kBytesPerNs = 32;  // an SM's share of memory bandwidth when all SMs load
  constexpr double kLineBytes = 128;  // best transfer size of memory and caches
  const double elements = blocks * plan.steps * plan.threads() * kQuad;
  const double lines = 1 + line * std::max(0.0, kLineBytes / (plan.chunk * element_bytes(p)) - 1);
  return 3 * elements * element_bytes(p) * lines / kBytesPerNs;
}

// Rough time of a plan in ns, to compare plans: it leaves out the time that every plan takes. Infinity: the plan does
// not fit an SM.
double plan_ns(const Problem& p, const DzPlan& plan, const Needs& needs, const Costs& costs) {
  const Turns turns = turns_of(p, plan, needs);
  if (turns.most_blocks == 0) return kInfinity;
  double blocks = turns.blocks;
  if (costs.rounds_up_blocks) blocks = std::max(blocks, std::min<double>(turns.most_blocks, std::ceil(blocks)));
  const double traffic = traffic_ns(p, plan, blocks, costs.line);

  // Charge steps and cluster in full for the first wave, where nothing hides them. If an SM has several blocks, charge
  // the fraction `exposed` of them for later waves.
  const double latency_ns = plan.steps * costs.step_ns + plan.log_cluster * costs.cluster_ns;
  return traffic + latency_ns * (1 + (turns.waves - 1) * (turns.most_blocks > 1 ? costs.exposed : 1.0));
}

// Rough time in ns of a plan with group sums, fitted to a sweep of all of v12's plans for the shapes of `perf` on an
// H200: the larger of the time of all waves, one after the other, and that of memory; then the end of the last block.
double plan_of_turns_ns(const Problem& p, const DzPlan& plan, const Needs& needs) {
  constexpr double kLine = 0.65;      // see Costs::line
  constexpr double kBlockNs = 1400;   // of every block
  constexpr double kClusterNs = 700;  // per doubling of the cluster
  constexpr double kStepNs = 180;     // per step of a thread, on an SM with kThreadsPerSm threads
  constexpr double kAlone = 0.7;      // fraction of kStepNs that remains without other threads
  constexpr double kFoldNs = 100;     // if two partial sums share a row
  constexpr double kLast = 0.1;       // fraction of a block that nothing hides
  constexpr double kTooMany = 10;     // factor for blocks of too many warps: only if nothing else fits
  // Prefer small blocks, of at most four warps, or six if a row's quads are no power of two: more of them fill an SM's
  // shared memory evenly, and one computes while another loads.
  const int most_warps = std::has_single_bit(static_cast<unsigned>(plan.quads)) ? 4 : 6;
  const Turns turns = turns_of(p, plan, needs);
  if (turns.most_blocks == 0) return kInfinity;

  const double filled = std::min<double>(turns.most_blocks, std::ceil(turns.blocks)) * plan.threads() / kThreadsPerSm;
  const double block = kBlockNs + plan.log_cluster * kClusterNs +
                       plan.steps * kStepNs * (kAlone + (1 - kAlone) * filled) +
                       (plan.partial_rows < plan.partial_sums ? kFoldNs : 0);
  const double ns = std::max(traffic_ns(p, plan, turns.blocks, kLine), turns.waves * block) + kLast * block;
  return plan.warps > most_warps ? kTooMany * ns : ns;
}

// Sets the fewest steps that `warps` warps allow, then the fewest pixel rows that these steps allow, then the
// fewest warps for these rows.
void plan_threads(int warps, DzPlan& plan) {
  const int most_rows = std::min(warps * 32 / plan.quads, plan.pixels_per_block);
  plan.steps = ceil_div(plan.pixels_per_block, most_rows * kStepsAtOnce) * kStepsAtOnce;
  plan.pixel_rows = ceil_div(plan.pixels_per_block, plan.steps);
  plan.warps = ceil_div(plan.quads * plan.pixel_rows, 32);
  plan.first_steps = ceil_div(plan.steps / kStepsAtOnce, 2) * kStepsAtOnce;
  plan.partial_sums = plan.quads < 32 ? plan.warps : plan.pixel_rows;
  plan.partial_rows = plan.partial_sums;
}

// Calls f(plan) with every plan of the chunk and cluster of `plan`: with every number of warps and of partial rows.
template <class F>
void for_blocks(const Needs& needs, DzPlan plan, const F& f) {
  for (int warps = kMaxThreads / 32; warps * 32 >= std::max(32, plan.quads); --warps) {
    plan_threads(warps, plan);
    const bool in_lanes = plan.quads < 32 && std::has_single_bit(static_cast<unsigned>(plan.quads));
    const bool folds = needs.group_sums && plan.partial_sums > 1 && !in_lanes;
    for (int fold = 0; fold <= (folds ? 1 : 0); ++fold) {
      plan.partial_rows = ceil_div(plan.partial_sums, 1 + fold);
      f(plan);
    }
  }
}

// Returns the plan of the lowest cost(plan), in any unit.
template <class Cost>
DzPlan best_plan(const Problem& p, const Needs& needs, const Cost& cost) {
  DzPlan best;
  if (!whole_vectors(p)) return best;
  const int channels_per_group = p.channels_per_group();
  // The fewest channels that are whole groups and whole 16-byte vectors.
  const int chunk_step = std::lcm(channels_per_group, 16 / element_bytes(p));
  const int max_cluster = needs.group_sums ? most_cluster_blocks() : kMaxClusterBlocks;
  double lowest = kInfinity;
  for (int log_cluster = 0; 1 << log_cluster <= max_cluster; ++log_cluster) {
    const int pixels_per_block = ceil_div(p.pixels(), 1 << log_cluster);
    if (ceil_div(p.pixels(), pixels_per_block) != 1 << log_cluster) continue;  // some block would have no pixels
    for (int chunk = chunk_step; chunk <= p.c; chunk += chunk_step) {
      if (p.c % chunk != 0) continue;
      const DzPlan chunk_plan{.chunk = chunk,
                              .channels_per_group = channels_per_group,
                              .groups = chunk / channels_per_group,
                              .reciprocal_width = (1u << 20) / channels_per_group + 1,
                              .log_cluster = log_cluster,
                              .pixels_per_block = pixels_per_block,
                              .quads = chunk / kQuad};
      for_blocks(needs, chunk_plan, [&](const DzPlan& plan) {
        const double value = cost(plan);
        if (value < lowest) best = plan, lowest = value;
      });
    }
  }
  best.reciprocal_quads = best.quads > 0 ? 65536 / best.quads + 1 : 0;
  best.inverse_m = 1.0f / static_cast<float>(p.group_size());
  return best;
}

}  // namespace

int smem_bytes(const Problem& p, const DzPlan& plan, const Needs& needs) {
  const int quads = plan.steps * plan.threads();
  return quads * kQuad * (element_bytes(p) + 4) + needs.sums_bytes(plan);
}

DzPlan plan_of(const Problem& p, const Needs& needs, const Costs& costs) {
  return best_plan(p, needs, [&](const DzPlan& plan) { return plan_ns(p, plan, needs, costs); });
}

DzPlan plan_of_turns(const Problem& p, const Needs& needs) {
  constexpr int kMaxGroups = 1 << kLogWarp;  // of a chunk: each needs a lane of a warp
  DzPlan plan = best_plan(p, needs, [&](const DzPlan& candidate) {
    return candidate.groups > kMaxGroups ? kInfinity : plan_of_turns_ns(p, candidate, needs);
  });
  const auto log_of = [](int count) { return static_cast<int>(std::bit_width(count - 1u)); };
  plan.log_channels = std::min(log_of(plan.channels_per_group), kLogWarp);
  plan.log_ranks = kLogWarp - log_of(plan.groups);
  plan.reads_once = fits_l2(3.0 * p.elements() * element_bytes(p));
  return plan;
}

const char* supports(const Problem& p, const Needs& needs) {
  constexpr int kMaxImages = 65535;  // rows of a grid
  if (const char* const why = plain_dx_only(p); why && !needs.fuses_neighbours) return why;
  if (const char* const why = one_x_only(p); why && !needs.split) return why;
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  if (p.n > kMaxImages) return "more images than a grid has rows";
  if (plan_of(p, needs, {}).chunk == 0) {
    return "x and dz of an image's group do not fit in the shared memory of a cluster";
  }
  return nullptr;
}

}  // namespace ladder::groupnorm::resident_dz
