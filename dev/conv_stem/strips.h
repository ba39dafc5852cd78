// Split of an output's rows, image after image and column tile after column tile, into equal ranges: one a warpgroup, a
// few warpgroups a block, a block on every SM. A range is walked in strips, each within one image's column tile.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "core/device.h"
#include "dev/conv_stem/conv_stem.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::conv_stem {

struct Strip {
  int image, tile;
  int row, rows;  // the first one, and how many
};

struct OutputRows {
  int images, tiles, rows_per_tile;  // tiles are of columns
  __host__ __device__ long long count() const { return static_cast<long long>(images) * tiles * rows_per_tile; }

  // Returns the first strip of rows [begin, end).
  __device__ __forceinline__ Strip strip(int begin, int end) const {
    const int row = begin % rows_per_tile;
    return {.image = begin / rows_per_tile / tiles,
            .tile = begin / rows_per_tile % tiles,
            .row = row,
            .rows = end - begin < rows_per_tile - row ? end - begin : rows_per_tile - row};
  }

  // Returns the first row of range i of `num_ranges`.
  __device__ __forceinline__ int range_begin(int i, int num_ranges) const {
    return static_cast<int>(count() * i / num_ranges);
  }
};

// Returns the grid of blocks of `groups` warpgroups for all rows, for each of `channel_tiles` tiles of output channels.
inline dim3 strip_grid(const OutputRows& rows, int groups, int channel_tiles) {
  const int blocks = std::max(1, backend::device().num_sms / channel_tiles);
  return dim3(static_cast<unsigned>(std::min<long long>((rows.count() + groups - 1) / groups, blocks)), channel_tiles);
}

// A barrier of a warpgroup in a shared word of its own, which one thread initialises for kWarps arrivals.
struct GroupBarrier {
  static constexpr int kWarps = 4;
  ptx::Mbarrier* barrier;
  unsigned parity = 0;

  __device__ __forceinline__ void arrive() const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }
  __device__ __forceinline__ void wait() {
    ptx::mbarrier_wait(barrier, parity);
    parity ^= 1;
  }
};

}  // namespace ladder::conv_stem
