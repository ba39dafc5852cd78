// Slabs: the pixels of an image times a chunk of its channels, resident in one block or in the blocks of a cluster between the
// summing pass and the pass that uses the sums, so that memory is read once.
//
// A chunk is whole groups and whole vectors of 16 bytes. Its threads are columns (a vector's channels) times rows (a power
// of two): row r of a block has its pixels r, r + rows, ... of one column, so that neighbouring threads read neighbouring
// vectors and any thread's channels stay the same.
#pragma once

#include <algorithm>
#include <numeric>

#include "core/backend.h"
#include "core/device.h"
#include "dev/common/vectors.h"

namespace ladder::groupnorm {

struct SlabPlan {
  int channels = 0;            // channels per chunk; 0: no slab of the problem is small enough
  int columns = 0;             // 16-byte vectors of a pixel in the chunk
  int log_rows = 0;            // log2 of the pixels that a block takes per step
  int cluster = 1;             // blocks that share a slab
  int pixels_per_block = 0;    // the last block of a cluster may have fewer
  int vectors_per_thread = 0;  // at most

  __host__ __device__ int rows() const { return 1 << log_rows; }
  __host__ __device__ int threads() const { return columns * rows(); }
};

inline unsigned slab_blocks(const Problem& p, const SlabPlan& plan) {
  return static_cast<unsigned>(p.n) * (p.c / plan.channels) * plan.cluster;
}

// Limits on a version's slabs.
struct SlabLimits {
  int resident_tensors = 1;  // tensors of x's size and type in a slab
  int block_bytes = 0;       // most bytes of a slab in a block
  int good_block_bytes = 0;  // beyond it more blocks in a cluster are better than more bytes in each
  int max_cluster = 1;
  int max_vectors = 1 << 20;   // vectors per thread and tensor, at most
  int good_vectors = 1 << 20;  // likewise: beyond it more threads are better
  int max_threads = 512;
  int max_threads_of_many = 512;  // where a thread has more than good_vectors
};

// Chooses the threads of a chunk: about 256. More if a thread had too many vectors, or if an SM has only a block or
// two, whose latencies other blocks cannot hide; never far more than there are vectors. Returns false if the limits
// forbid all numbers.
inline bool plan_rows(const Problem& p, const SlabLimits& limits, SlabPlan& plan) {
  constexpr int kThreads = 256;
  const bool small_grid = slab_blocks(p, plan) <= 2u * static_cast<unsigned>(backend::device().num_sms);
  const int wanted = std::min(small_grid ? 2 * kThreads : kThreads, limits.max_threads);
  bool found = false;
  for (int log_rows = 0; plan.columns << log_rows <= limits.max_threads; ++log_rows) {
    const int threads = plan.columns << log_rows;
    const int vectors = ceil_div(plan.pixels_per_block, 1 << log_rows);
    const std::int64_t bytes = std::int64_t{16} * vectors * threads * limits.resident_tensors;
    if (threads % 32 != 0 || vectors > limits.max_vectors || bytes > limits.block_bytes) continue;
    if (vectors > limits.good_vectors && threads > limits.max_threads_of_many) continue;
    const bool idle = 1 << log_rows >= 2 * plan.pixels_per_block;
    const bool enough = plan.threads() >= wanted && plan.vectors_per_thread <= limits.good_vectors;
    if (found && (enough || idle)) break;
    plan.log_rows = log_rows;
    plan.vectors_per_thread = vectors;
    found = true;
  }
  return found;
}

// Returns the narrowest slab whose rows are at least 64 bytes wide, two sectors of every pixel; if none fits, the
// widest narrower one. The cluster is the smallest that leaves a block at most good_block_bytes. Its last block may
// have fewer pixels.
inline SlabPlan plan_slab(const Problem& p, const SlabLimits& limits) {
  constexpr int kGoodRowBytes = 64;
  const int element = static_cast<int>(size_of(p.dtype));
  const int vector = 16 / element;
  const int step = std::lcm(p.channels_per_group(), vector);
  SlabPlan best;
  if (!whole_vectors(p) || p.c % step != 0) return best;
  for (int channels = step; channels <= p.c; channels += step) {
    if (p.c % channels != 0) continue;
    const auto bytes = [&](int pixels) { return std::int64_t{pixels} * channels * element * limits.resident_tensors; };
    SlabPlan plan{.channels = channels, .columns = channels / vector};
    while (plan.cluster < limits.max_cluster && bytes(ceil_div(p.pixels(), plan.cluster)) > limits.good_block_bytes) {
      plan.cluster *= 2;
    }
    plan.pixels_per_block = ceil_div(p.pixels(), plan.cluster);
    if (!plan_rows(p, limits, plan)) continue;
    best = plan;
    if (channels * element >= kGoodRowBytes) break;
  }
  return best;
}

}  // namespace ladder::groupnorm
