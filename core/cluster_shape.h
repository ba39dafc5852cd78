// Which clusters a grid can be launched in.
#pragma once

#include <vector_types.h>

#include <string>

namespace ladder {

inline constexpr unsigned kMostPortableClusterBlocks = 8;  // more only where the kernel opts in to it

// Empty, or why a grid cannot be launched in clusters of this shape.
inline std::string cluster_refusal(dim3 grid, dim3 cluster) {
  constexpr unsigned kMostBlocks = 16;  // compute capability 9.0, opted in
  auto text = [](dim3 d) {
    return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
  };
  if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 || cluster.x > kMostBlocks || cluster.y > kMostBlocks ||
      cluster.z > kMostBlocks || cluster.x * cluster.y * cluster.z > kMostBlocks) {
    return "a cluster of " + text(cluster) + " blocks; 1 to " + std::to_string(kMostBlocks) + " are allowed";
  }
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    return "a grid of " + text(grid) + " blocks is not a multiple of its clusters of " + text(cluster);
  }
  return {};
}

}  // namespace ladder
