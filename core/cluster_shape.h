// Which clusters a grid can be launched in, and which grids can run as a whole.
#pragma once

#include <vector_types.h>

#include <string>

namespace ladder {

inline constexpr unsigned kMaxPortableClusterBlocks = 8;  // more only where the kernel opts in to it

// Empty, or why a grid of `grid` blocks cannot be launched in clusters of `cluster` blocks.
std::string cluster_refusal(dim3 grid, dim3 cluster);

// Empty, or why a cooperative grid cannot be launched on a card that runs `resident` of its blocks at a time.
std::string cooperative_refusal(dim3 grid, dim3 cluster, int resident);

}  // namespace ladder
