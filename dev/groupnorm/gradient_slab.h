// Channel and group sums over a slab (gradient_plan.h), of v06. x and dy are read once.
#pragma once

#include "dev/common/vectors.h"
#include "dev/groupnorm/gradient_plan.h"
#include "dev/groupnorm/gradient_terms.h"

namespace ladder::groupnorm {

// Shared memory of the sums, slab_sums_bytes() in all: the threads' sums, then for each channel its constants, the
// block's sums, which blocks exchange, the image's weighted sums and the correction of its group.
template <class T>
struct SlabSums {
  float4* scratch;          // [kVector / 2][half the rows][columns]: two channels' (dz, dz * xhat, dz, dz * xhat)
  float2* sums;             // [chunk], of the block's pixels
  float2* weighted;         // [chunk], of all pixels, times gamma
  Correction* corrections;  // [chunk]
  Channel* channels;        // [chunk]

  __device__ __forceinline__ SlabSums(unsigned char* smem, const Slab& slab) {
    scratch = reinterpret_cast<float4*>(smem);
    channels = reinterpret_cast<Channel*>(scratch + slab_scratch(slab));
    sums = reinterpret_cast<float2*>(channels + slab.chunk);
    weighted = sums + slab.chunk;
    corrections = reinterpret_cast<Correction*>(weighted + slab.chunk);
  }
};
static_assert(sizeof(Channel) == 16 && sizeof(Correction) == 8);

// Position of a block and its thread in a slab. The thread has pixels begin, begin + rows, ... below `end`.
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
    end = row < slab.rows ? min((rank + 1) * slab.each, p.h * p.w) : 0;  // threads past the last row have none
  }
  // Offset in [n, h, w, c] of the thread's vector of a pixel.
  __device__ __forceinline__ int at(const Problem& p, int pixel) const {
    return (image * p.h * p.w + pixel) * p.c + first_channel + column * kVector<T>;
  }
};

// Loads the constants of the chunk's channels, once a block instead of once a thread. A barrier must follow.
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

// Adds up the threads' sums of dz and dz * (x - mean), and stores sums of dz and dz * xhat in smem.sums. A barrier must
// follow.
template <class T>
__device__ __forceinline__ void sum_rows(const Slab& slab, const SlabSums<T>& smem, const float2 (&own)[kVector<T>]) {
  constexpr int kPairs = kVector<T> / 2;  // of channels in a column
  const int half = ceil_div(slab.rows, 2);
  const int stride = half * slab.columns;
  const int index = threadIdx.x;
  const auto own_pair = [&](int i) -> float4 {
    return {own[2 * i].x, own[2 * i].y, own[2 * i + 1].x, own[2 * i + 1].y};
  };
  // Add the upper half of the rows to the lower half, in place: a thread overwrites only words that it alone reads.
  if (index >= stride && index < slab.active()) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) smem.scratch[i * stride + index - stride] = own_pair(i);
  }
  __syncthreads();
  if (index < stride) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      float4& sum = smem.scratch[i * stride + index];
      sum = index + stride < slab.active() ? add(own_pair(i), sum) : own_pair(i);
    }
  }
  __syncthreads();

  // Assign `lanes` lanes to a pair of channels, as many as the block has threads for. A lane adds every lanes-th row,
  // then shuffles add the lanes' sums.
  const int pairs = slab.columns * kPairs;
  int lanes = 32;
  while (lanes > 1 && lanes * pairs > static_cast<int>(blockDim.x)) lanes /= 2;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (int first = static_cast<int>(threadIdx.x) / 32 * (32 / lanes); first < pairs; first += blockDim.x / lanes) {
    const int pair = first + static_cast<int>(threadIdx.x) % 32 / lanes;
    float4 sum{0, 0, 0, 0};
    if (pair < pairs) {
#pragma unroll 4
      for (int row = lane; row < half; row += lanes) {
        sum = add(sum, smem.scratch[pair % kPairs * stride + row * slab.columns + pair / kPairs]);
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

// Computes smem.corrections, visible to all threads. total(i) returns the sums of the chunk's channel i over all pixels
// of the image; they are also stored in `rows` [n][c] if that is not null.
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
