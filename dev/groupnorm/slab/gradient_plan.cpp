#include "dev/groupnorm/slab/gradient_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/backend.h"
#include "core/occupancy.h"

namespace ladder::groupnorm {
namespace {

int vector_of(const Problem& p) { return 16 / static_cast<int>(size_of(p.dtype)); }

// Returns the slab of a chunk of channels; a cluster of blocks splits its pixels.
GradientSlab slab_of(const Problem& p, int chunk, int cluster) {
  GradientSlab slab{.chunk = chunk, .cluster = cluster, .columns = chunk / vector_of(p)};
  slab.pixels_per_block = ceil_div(p.h * p.w, cluster);
  slab.pixel_rows = std::min(kSmemThreads / slab.columns, slab.pixels_per_block);
  return slab;
}

// Rough time of a slab's kernel in ns, to compare plans; infinity if a block needs more shared memory than an SM has.
double slab_ns(const Problem& p, const GradientSlab& slab) {
  constexpr double kDramBytesPerNs = 4200;
  constexpr double kElementNs = 0.12;  // per element on a full SM: some 28 issue slots on 128 lanes
  constexpr double kAlone = 1.5;       // factor on kElementNs for a block without others on its SM
  constexpr double kPhasesNs = 1700;   // fixed part of a block: the first load, barriers, the last store
  constexpr double kClusterNs = 600;   // of a cluster: its common start and its barriers
  const int smem_bytes = slab_smem_bytes(slab);
  if (smem_bytes > most_smem_bytes()) return std::numeric_limits<double>::infinity();
  const int num_sms = backend::device().num_sms;
  const int blocks = static_cast<int>(slab_blocks(p, slab));
  const int per_sm = std::min(blocks_per_sm(smem_bytes), kSmemBlocksPerSm);

  // A run that ends within a sector of 32 bytes wastes the rest of the sector, and DRAM delivers two sectors at once.
  const double run = slab.columns * 16;
  const double fetched = (run + (slab.columns % 2 == 0 ? 0 : 16)) / run * (run < 64 ? 1.25 : 1.0);
  const double elements = static_cast<double>(p.elements());
  const double traffic = 3 * elements * size_of(p.dtype) * fetched / kDramBytesPerNs;
  const double arithmetic = elements / std::min(blocks, num_sms) * kElementNs;
  // Blocks of an SM take turns: the first one's loads and the last one's arithmetic overlap with nothing.
  const double alone = kPhasesNs + double(slab.pixels_per_block) * slab.chunk * kElementNs * kAlone +  //
                       (slab.cluster > 1 ? kClusterNs : 0);
  const double turns = std::max(1.0, double(blocks) / (per_sm * num_sms)) * alone;
  return per_sm == 1 ? traffic + ceil_div(blocks, num_sms) * alone : std::max({traffic, arithmetic, turns}) + alone;
}

}  // namespace

GradientSlab plan_smem(const Problem& p) {
  GradientSlab best;
  if (!whole_vectors(p)) return best;
  const int chunk_step = std::lcm(p.c / p.g, vector_of(p));  // fewest channels of whole groups and whole vectors
  const int total = p.c / chunk_step;
  double lowest = std::numeric_limits<double>::infinity();  // of a slab that does not fit
  for (int cluster = 1; cluster <= std::min(kMaxClusterBlocks, p.h * p.w); cluster *= 2) {
    // Skip clusters in which some block would have no pixels.
    if (ceil_div(p.h * p.w, ceil_div(p.h * p.w, cluster)) != cluster) continue;
    for (int steps = 1; steps <= total; ++steps) {
      if (total % steps != 0 || chunk_step * steps / vector_of(p) > kSmemThreads) continue;
      const GradientSlab slab = slab_of(p, chunk_step * steps, cluster);
      const double ns = slab_ns(p, slab);
      if (ns >= lowest) continue;
      best = slab;
      lowest = ns;
    }
  }
  return best;
}

}  // namespace ladder::groupnorm
