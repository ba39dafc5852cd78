// How many blocks may share a slab: a cluster that any card with clusters has room for.
#pragma once

#include "core/cluster_shape.h"

namespace ladder::groupnorm {

inline constexpr int kMostClusterBlocks = static_cast<int>(kMostPortableClusterBlocks);

}  // namespace ladder::groupnorm
