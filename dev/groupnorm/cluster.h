// How many blocks may share a slab.
#pragma once

#include "core/backend.h"
#include "core/cluster_shape.h"

namespace ladder::groupnorm {

// Any card with clusters has room for so many.
inline constexpr int kMostClusterBlocks = static_cast<int>(kMostPortableClusterBlocks);

// What the card at hand has room for: the data centre's cards take 16 (CUDA programming guide, thread block clusters).
inline int most_cluster_blocks() {
  const int arch = backend::device().arch;
  return arch >= 90 && arch < 120 ? 2 * kMostClusterBlocks : kMostClusterBlocks;
}

}  // namespace ladder::groupnorm
