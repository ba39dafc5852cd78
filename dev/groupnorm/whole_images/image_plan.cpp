#include "dev/groupnorm/whole_images/image_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/occupancy.h"

namespace ladder::groupnorm::whole_images {
namespace {

constexpr int kQuad = 4;
constexpr int kMaxQuads = 32;  // of a pixel: every warp has all channels

// Issue slots of the busiest scheduler, to compare plans. What a thread has of them was counted in the machine code.
double plan_slots(const Problem& p, const ImagePlan& plan) {
  constexpr int kOnceSlots = 370;
  constexpr int kStepSlots = 85;
  constexpr int kSchedulers = 4;  // of an SM
  constexpr double kAlone = 2.2;  // what a warp that is alone takes longer: a guess
  const double slots = kOnceSlots + plan.steps * kStepSlots;
  const int blocks = ceil_div(p.c / plan.chunk * plan.cluster, backend::device().num_sms);  // of an SM
  return slots * std::max(kAlone, double(blocks) * plan.block_warps() / kSchedulers);
}

// The plan of a chunk, a cluster and `warps` for an image; steps 0: a thread would have too many.
ImagePlan plan_with(const Problem& p, int chunk, int cluster, int warps) {
  const int channels_per_group = p.channels_per_group();
  ImagePlan plan{.chunk = chunk,
                 .channels_per_group = channels_per_group,
                 .cluster = cluster,
                 .images_per_block = ceil_div(p.n, cluster),
                 .quads = chunk / kQuad,
                 .warps = warps,
                 .reciprocal_width = 65536u / channels_per_group + 1,
                 .inverse_m = 1.0f / static_cast<float>(p.group_size())};
  plan.reciprocal_quads = 65536u / plan.quads + 1;
  plan.pixel_rows = std::min(warps * 32 / plan.quads, p.pixels());
  const int least = ceil_div(p.pixels(), plan.pixel_rows);
  if (least > kMaxSteps) return plan;
  plan.steps = least > 4 ? kMaxSteps : 4;
  plan.warp_bytes = parked_bytes(plan.steps, static_cast<int>(size_of(p.dtype))) + 4 * (2 * kWarpWords + 8 * chunk);
  return plan;
}

}  // namespace

// The widest chunk of those that cost least, as its runs in memory are the longest.
ImagePlan plan_of(const Problem& p) {
  ImagePlan best;
  if (p.c % kQuad != 0) return best;
  const int chunk_step = std::lcm(p.channels_per_group(), kQuad);
  double lowest = std::numeric_limits<double>::infinity();
  for (int chunk = kMaxQuads * kQuad / chunk_step * chunk_step; chunk > 0; chunk -= chunk_step) {
    if (p.c % chunk != 0) continue;
    for (int cluster = 1; cluster <= std::min(kMaxClusterBlocks, p.n); cluster *= 2) {
      for (int warps = 1; warps <= kMaxThreads / 32 / ceil_div(p.n, cluster); ++warps) {
        const ImagePlan plan = plan_with(p, chunk, cluster, warps);
        if (plan.steps == 0 || smem_bytes(plan) > most_smem_bytes()) continue;
        const double slots = plan_slots(p, plan);
        if (slots < lowest) best = plan, lowest = slots;
      }
    }
  }
  return best;
}

}  // namespace ladder::groupnorm::whole_images
