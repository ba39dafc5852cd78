// The backward pass of a slab at a time: the pixels of a chunk of channels of an image, whole groups of them, kept in
// shared memory or registers by one block or by the blocks of a cluster, which share out the pixels. x and dy are read
// once. What v05 and later share: the plan, and the sums over a slab.
//
// A thread has one column, a vector's channels, and every so many pixels. Needs whole vectors; groups need not align with
// them, a chunk does with both.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/backend.h"
#include "core/occupancy.h"
#include "dev/common/vectors.h"
#include "dev/groupnorm/gradient.h"

namespace ladder::groupnorm {

struct Slab {
  int chunk = 0;    // channels; 0: the problem has no slab
  int cluster = 1;  // blocks that share its pixels
  int columns = 0;  // vectors of a pixel
  int rows = 0;     // pixels that a block's threads take at a time
  int each = 0;     // pixels of a block

  __host__ __device__ int active() const { return columns * rows; }  // threads with a column
  __host__ __device__ int steps() const { return ceil_div(each, rows); }
};

inline unsigned slab_threads(const Slab& slab) { return static_cast<unsigned>(ceil_div(slab.active(), 32) * 32); }

inline unsigned slab_blocks(const Problem& p, const Slab& slab) {
  return static_cast<unsigned>(p.n) * (p.c / slab.chunk) * slab.cluster;
}

// A chunk of `units` of whole groups and vectors, its pixels shared out to a cluster of blocks of at most `threads`.
template <class T>
Slab slab_of(const Problem& p, int unit, int units, int cluster, int threads) {
  Slab slab{.chunk = unit * units, .cluster = cluster};
  slab.columns = slab.chunk / kVector<T>;
  slab.each = ceil_div(p.h * p.w, cluster);
  slab.rows = std::min(threads / slab.columns, slab.each);
  return slab;
}

// The least channels that are whole groups and whole vectors.
template <class T>
int slab_unit(const Problem& p) {
  return std::lcm(p.c / p.g, kVector<T>);
}

// Of all slabs the one of the lowest cost(slab); infinity: it does not fit.
template <class T, class Cost>
Slab best_slab(const Problem& p, int most_cluster, int threads, const Cost& cost) {
  Slab best;
  if (!whole_vectors(p)) return best;
  const int unit = slab_unit<T>(p);
  const int total = p.c / unit;
  double lowest = 0;
  for (int cluster = 1; cluster <= std::min(most_cluster, p.h * p.w); cluster *= 2) {
    // Each of its blocks has pixels.
    if (ceil_div(p.h * p.w, ceil_div(p.h * p.w, cluster)) != cluster) continue;
    for (int units = 1; units <= total; ++units) {
      if (total % units != 0 || unit * units / kVector < T >> threads) continue;
      const Slab slab = slab_of<T>(p, unit, units, cluster, threads);
      const double value = cost(slab);
      if (std::isinf(value) || (best.chunk != 0 && value >= lowest)) continue;
      best = slab;
      lowest = value;
    }
  }
  return best;
}

// What a slab takes, roughly, to compare plans; infinity where a block would need more shared memory than there is.
inline double slab_ns(const Problem& p, const Slab& slab, int smem_bytes, int most_blocks_per_sm) {
  constexpr double kDramBytesPerNs = 4200;
  constexpr double kElementNs = 0.12;  // of an SM: some 28 issue slots on 128 lanes
  constexpr double kAlone = 1.5;       // a block computes so much slower than a full SM
  constexpr double kPhasesNs = 1700;   // of a block, beside that: the first load, barriers, the last store
  constexpr double kClusterNs = 600;   // its start together, and its barriers
  if (smem_bytes > most_smem_bytes()) return std::numeric_limits<double>::infinity();
  const int num_sms = backend::device().num_sms;
  const int blocks = static_cast<int>(slab_blocks(p, slab));
  const int per_sm = std::min(blocks_per_sm(smem_bytes), most_blocks_per_sm);

  // A run that ends within a sector of 32 bytes fetches it for nothing, and DRAM gives two sectors at once.
  const double run = slab.columns * 16;
  const double fetched = (run + (slab.columns % 2 == 0 ? 0 : 16)) / run * (run < 64 ? 1.25 : 1.0);
  const double elements = static_cast<double>(p.elements());
  const double traffic = 3 * elements * size_of(p.dtype) * fetched / kDramBytesPerNs;
  const double arithmetic = elements / std::min(blocks, num_sms) * kElementNs;
  // Blocks of an SM come one behind the other: the first one's loads and the last one's arithmetic overlap with nothing.
  const double alone = kPhasesNs + double(slab.each) * slab.chunk * kElementNs * kAlone +  //
                       (slab.cluster > 1 ? kClusterNs : 0);
  const double turns = std::max(1.0, double(blocks) / (per_sm * num_sms)) * alone;
  return per_sm == 1 ? traffic + ceil_div(blocks, num_sms) * alone : std::max({traffic, arithmetic, turns}) + alone;
}

// Shared memory of the sums, in bytes: each thread's, and of every channel those that blocks exchange, what the groups
// make of them, and the constants.
template <class T>
struct SlabSums {
  float4* scratch;          // [kVector / 2][half the rows][columns]: of two channels (dz, dz * xhat, dz, dz * xhat)
  float2* sums;             // [chunk], of the block's pixels
  float2* weighted;         // [chunk], of all pixels, times gamma
  Correction* corrections;  // [chunk]
  Channel* channels;        // [chunk]

  static __host__ __device__ int scratch_size(const Slab& slab) {
    return ceil_div(slab.rows, 2) * slab.columns * kVector<T> / 2;
  }
  static int bytes(const Slab& slab) { return scratch_size(slab) * 16 + slab.chunk * (3 * 8 + 16); }
  __device__ __forceinline__ SlabSums(unsigned char* smem, const Slab& slab) {
    scratch = reinterpret_cast<float4*>(smem);
    channels = reinterpret_cast<Channel*>(scratch + scratch_size(slab));
    sums = reinterpret_cast<float2*>(channels + slab.chunk);
    weighted = sums + slab.chunk;
    corrections = reinterpret_cast<Correction*>(weighted + slab.chunk);
  }
};
static_assert(sizeof(Channel) == 16 && sizeof(Correction) == 8);

// Where a block of a slab is, and a thread of it.
template <class T>
struct SlabPlace {
  int image, rank, first_channel, column, row, begin, end;

  __device__ __forceinline__ SlabPlace(const Problem& p, const Slab& slab) {
    const int chunks = p.c / slab.chunk;
    const int index = static_cast<int>(blockIdx.x) / slab.cluster;
    rank = static_cast<int>(blockIdx.x) % slab.cluster;  // neighbours in the grid are a cluster
    first_channel = index % chunks * slab.chunk;
    image = index / chunks;
    column = static_cast<int>(threadIdx.x) % slab.columns;
    row = static_cast<int>(threadIdx.x) / slab.columns;
    begin = rank * slab.each + row;
    end = row < slab.rows ? min((rank + 1) * slab.each, p.h * p.w) : 0;  // threads behind the last row have none
  }
  // Of the tensor, the thread's vector of a pixel.
  __device__ __forceinline__ int at(const Problem& p, int pixel) const {
    return (image * p.h * p.w + pixel) * p.c + first_channel + column * kVector<T>;
  }
};

// What channels are made of, once a block instead of once a thread. A barrier must follow.
template <class T>
__device__ __forceinline__ void load_channels(const Problem& p, const Backward::Tensors& t, const Slab& slab,
                                              const SlabPlace<T>& place, const SlabSums<T>& smem) {
  for (int i = threadIdx.x; i < slab.chunk; i += blockDim.x) {
    smem.channels[i] = channel_of(p, t, place.image, place.first_channel + i);
  }
}

__device__ __forceinline__ float4 add(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Adds up the threads' sums of dz and dz * (x - mean) into smem.sums, those of dz * xhat. A barrier must follow.
template <class T>
__device__ __forceinline__ void sum_rows(const Slab& slab, const SlabSums<T>& smem, const float2 (&own)[kVector<T>]) {
  constexpr int kPairs = kVector<T> / 2;  // of channels in a column
  const int half = ceil_div(slab.rows, 2);
  const int stride = half * slab.columns;
  const int index = threadIdx.x;
  float4 pairs_own[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) pairs_own[i] = {own[2 * i].x, own[2 * i].y, own[2 * i + 1].x, own[2 * i + 1].y};
  // The upper half of the rows goes to the lower, in place: a thread overwrites what it alone has read.
  if (index >= stride && index < slab.active()) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) smem.scratch[i * stride + index - stride] = pairs_own[i];
  }
  __syncthreads();
  if (index < stride) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      float4& sum = smem.scratch[i * stride + index];
      sum = index + stride < slab.active() ? add(pairs_own[i], sum) : pairs_own[i];
    }
  }
  __syncthreads();

  // `lanes` lanes for each pair of channels, as many as there are threads for: each adds every so many rows, then they
  // add each other's sums.
  const int pairs = slab.columns * kPairs;
  int lanes = 32;
  while (lanes > 1 && lanes * pairs > static_cast<int>(blockDim.x)) lanes /= 2;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (int first = static_cast<int>(threadIdx.x) / 32 * (32 / lanes); first < pairs; first += blockDim.x / lanes) {
    const int pair = first + static_cast<int>(threadIdx.x) % 32 / lanes;
    const int column = pair / kPairs;
    float4 sum{0, 0, 0, 0};
    if (pair < pairs) {
#pragma unroll 4
      for (int row = lane; row < half; row += lanes) {
        sum = add(sum, smem.scratch[pair % kPairs * stride + row * slab.columns + column]);
      }
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      sum = add(sum, {__shfl_xor_sync(~0u, sum.x, distance), __shfl_xor_sync(~0u, sum.y, distance),
                      __shfl_xor_sync(~0u, sum.z, distance), __shfl_xor_sync(~0u, sum.w, distance)});
    }
    if (pair < pairs && lane == 0) {
      smem.sums[2 * pair] = {sum.x, sum.y * smem.channels[2 * pair].rstd};
      smem.sums[2 * pair + 1] = {sum.z, sum.w * smem.channels[2 * pair + 1].rstd};
    }
  }
}

// Makes smem.corrections, for all threads to see. total(i): the sums of the chunk's channel i over all pixels of the image,
// which go to `rows` [n][c] as well, where that is not null.
template <class T, class Total>
__device__ __forceinline__ void correct(const Problem& p, const Backward::Tensors& t, const Slab& slab,
                                        const SlabPlace<T>& place, const SlabSums<T>& smem, float2* rows,
                                        const Total& total) {
  for (int i = threadIdx.x; i < slab.chunk; i += blockDim.x) {
    const int c = place.first_channel + i;
    const float2 sums = total(i);
    if (rows) rows[static_cast<long long>(place.image) * p.c + c] = sums;
    const float gamma = gamma_of(t, c);
    smem.weighted[i] = {gamma * sums.x, gamma * sums.y};
  }
  __syncthreads();
  const int width = p.c / p.g;
  const float inverse_m = 1.0f / static_cast<float>(p.h * p.w * width);
  for (int i = static_cast<int>(threadIdx.x) * width; i < slab.chunk; i += static_cast<int>(blockDim.x) * width) {
    float2 ab{0, 0};
    for (int c = i; c < i + width; ++c) ab.x += smem.weighted[c].x, ab.y += smem.weighted[c].y;
    const Correction correction = correction_of(smem.channels[i].rstd, ab, inverse_m);
    for (int c = i; c < i + width; ++c) smem.corrections[c] = correction;
  }
  __syncthreads();
}

}  // namespace ladder::groupnorm
