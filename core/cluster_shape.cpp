#include "core/cluster_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace ladder {

std::string cluster_refusal(dim3 grid, dim3 cluster) {
  constexpr unsigned kMaxBlocks = 16;  // compute capability 9.0, opted in
  const auto [low, high] = std::minmax({cluster.x, cluster.y, cluster.z});
  if (low == 0 || high > kMaxBlocks || cluster.x * cluster.y * cluster.z > kMaxBlocks) {
    return fmt::format("invalid launch: a cluster of ({},{},{}) blocks; 1 to {} are allowed", cluster.x, cluster.y,
                       cluster.z, kMaxBlocks);
  }
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    return fmt::format("invalid launch: a grid of ({},{},{}) blocks is not a multiple of its clusters of ({},{},{})",
                       grid.x, grid.y, grid.z, cluster.x, cluster.y, cluster.z);
  }
  return {};
}

std::string cooperative_refusal(dim3 grid, dim3 cluster, int resident) {
  if (cluster.x * cluster.y * cluster.z != 1) return "invalid launch: a cooperative grid in clusters; it has none";
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  if (blocks <= static_cast<std::uint64_t>(resident)) return {};
  return fmt::format("invalid launch: a cooperative grid of {} blocks; this card runs {} of them at a time", blocks,
                     resident);
}

}  // namespace ladder
