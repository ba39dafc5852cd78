// The rows of an output, image after image and column tile after column tile, in equal shares: one a warpgroup, two or
// kGroups warpgroups a block, every SM a block. A share is walked in strips, each within one image's column tile.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "core/device.h"
#include "dev/conv_stem/conv_stem.h"

namespace ladder::conv_stem {

inline constexpr int kBlockGroups = 2;

struct Strip {
  int image, tile;
  int row, rows;  // the first one, and how many
};

struct Rows {
  int images, tiles, each;  // of a column tile
  __host__ __device__ long long count() const { return static_cast<long long>(images) * tiles * each; }

  // What rows begin to end - 1 begin with.
  __device__ __forceinline__ Strip strip(int begin, int end) const {
    const int row = begin % each;
    return {.image = begin / each / tiles,
            .tile = begin / each % tiles,
            .row = row,
            .rows = end - begin < each - row ? end - begin : each - row};
  }

  // The first row of share i of the launch's.
  template <int kGroups = kBlockGroups>
  __device__ __forceinline__ int share(int i) const {
    return static_cast<int>(count() * i / (kGroups * gridDim.x));
  }
};

// Blocks for all rows, of `channel_tiles` tiles of output channels each.
template <int kGroups = kBlockGroups>
dim3 strip_grid(const Rows& rows, int channel_tiles) {
  const int blocks = std::max(1, backend::device().num_sms / channel_tiles);
  return dim3(static_cast<unsigned>(std::min<long long>((rows.count() + kGroups - 1) / kGroups, blocks)),
              channel_tiles);
}

}  // namespace ladder::conv_stem
