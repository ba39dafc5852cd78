// Idea:   a slab is spread over a cluster: each block keeps x and dy of its share of the pixels in shared memory, and reads
//         the channels' sums of the others out of theirs.
// Parent: v02 (v03 to v05 are retired: README).
// Why:    a slab may be eight times as large, so that runs have 64 bytes and more where v05 has 16, every group of the U-Net
//         fits, and a small problem spreads over more SMs. Sums of blocks are added in the order of their ranks. Limiter:
//         x and dy pass through shared memory twice and the exponential is computed twice.
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in eight blocks' shared memory, clusters (sm_90); a
//         workspace of two floats a channel of every image.

#include "core/occupancy.h"
#include "dev/common/vectors.h"
#include "dev/groupnorm/gradient_terms.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/groupnorm/slab/gradient_plan.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/ld_shared_cluster.h"

namespace ladder::groupnorm {
namespace {

// Shared memory of the sums, slab_sums_bytes() in all: the threads' sums, then for each channel its constants, the
// block's sums, which blocks exchange, the image's weighted sums and the correction of its group.
template <class T>
struct SlabSums {
  float4* scratch;          // [kVector / 2][half the rows][columns]: two channels' (dz, dz * xhat, dz, dz * xhat)
  float2* sums;             // [chunk], of the block's pixels
  float2* weighted;         // [chunk], of all pixels, times gamma
  Correction* corrections;  // [chunk]
  Channel* channels;        // [chunk]

  __device__ __forceinline__ SlabSums(unsigned char* smem, const GradientSlab& slab) {
    scratch = reinterpret_cast<float4*>(smem);
    channels = reinterpret_cast<Channel*>(scratch + slab_scratch(slab));
    sums = reinterpret_cast<float2*>(channels + slab.chunk);
    weighted = sums + slab.chunk;
    corrections = reinterpret_cast<Correction*>(weighted + slab.chunk);
  }
};
static_assert(sizeof(Channel) == 16 && sizeof(Correction) == 8);

// Position of a block and its thread in a slab. The thread has pixels begin, begin + pixel_rows, ... below `end`.
template <class T>
struct GradientOffset {
  int image, cta_rank, first_channel, column, row, begin, end;

  __device__ __forceinline__ GradientOffset(const Problem& p, const GradientSlab& slab) {
    const int chunks = p.c / slab.chunk;
    const int index = static_cast<int>(blockIdx.x) / slab.cluster;
    cta_rank = static_cast<int>(blockIdx.x) % slab.cluster;  // neighbours in the grid are a cluster
    first_channel = index % chunks * slab.chunk;
    image = index / chunks;
    column = static_cast<int>(threadIdx.x) % slab.columns;
    row = static_cast<int>(threadIdx.x) / slab.columns;
    begin = cta_rank * slab.pixels_per_block + row;
    end = row < slab.pixel_rows ? min((cta_rank + 1) * slab.pixels_per_block, p.h * p.w)
                                : 0;  // threads past the last row have none
  }
  // Offset in [n, h, w, c] of the thread's vector of a pixel.
  __device__ __forceinline__ int offset_of(const Problem& p, int pixel) const {
    return (image * p.h * p.w + pixel) * p.c + first_channel + column * kVector<T>;
  }
};

// Loads the constants of the chunk's channels, once a block instead of once a thread. A barrier must follow.
template <class T>
__device__ __forceinline__ void load_channels(const Problem& p, const Backward::Tensors& t, const GradientSlab& slab,
                                              const GradientOffset<T>& tile, const SlabSums<T>& smem) {
  for (int i = threadIdx.x; i < slab.chunk; i += blockDim.x) {
    smem.channels[i] = channel_of(p, t, tile.image, tile.first_channel + i);
  }
}

__device__ __forceinline__ float4 add(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Adds up the threads' sums of dz and dz * (x - mean), and stores sums of dz and dz * xhat in smem.sums. A barrier must
// follow.
template <class T>
__device__ __forceinline__ void sum_rows(const GradientSlab& slab, const SlabSums<T>& smem,
                                         const float2 (&local_sums)[kVector<T>]) {
  constexpr int kPairs = kVector<T> / 2;  // of channels in a column
  const int half_rows = ceil_div(slab.pixel_rows, 2);
  const int stride = half_rows * slab.columns;
  const int index = threadIdx.x;
  const auto local_pair = [&](int i) -> float4 {
    return {local_sums[2 * i].x, local_sums[2 * i].y, local_sums[2 * i + 1].x, local_sums[2 * i + 1].y};
  };
  // Add the upper half of the rows to the lower half, in place: a thread overwrites only words that it alone reads.
  if (index >= stride && index < slab.active()) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) smem.scratch[i * stride + index - stride] = local_pair(i);
  }
  __syncthreads();
  if (index < stride) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      float4& sum = smem.scratch[i * stride + index];
      sum = index + stride < slab.active() ? add(local_pair(i), sum) : local_pair(i);
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
      for (int row = lane; row < half_rows; row += lanes) {
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
__device__ __forceinline__ void correct(const Problem& p, const Backward::Tensors& t, const GradientSlab& slab,
                                        const GradientOffset<T>& tile, const SlabSums<T>& smem, float2* rows,
                                        const Total& total) {
  for (int i = threadIdx.x; i < slab.chunk; i += blockDim.x) {
    const int c = tile.first_channel + i;
    const float2 sums = total(i);
    if (rows) rows[static_cast<long long>(tile.image) * p.c + c] = sums;
    const float gamma = gamma_of(t, c);
    smem.weighted[i] = {gamma * sums.x, gamma * sums.y};
  }
  __syncthreads();
  const int channels_per_group = p.c / p.g;
  const float inverse_m = 1.0f / static_cast<float>(p.h * p.w * channels_per_group);
  for (int i = static_cast<int>(threadIdx.x) * channels_per_group; i < slab.chunk;
       i += static_cast<int>(blockDim.x) * channels_per_group) {
    float2 ab{0, 0};
    for (int c = i; c < i + channels_per_group; ++c) ab.x += smem.weighted[c].x, ab.y += smem.weighted[c].y;
    const Correction correction = correction_of(smem.channels[i].rstd, ab, inverse_m);
    for (int c = i; c < i + channels_per_group; ++c) smem.corrections[c] = correction;
  }
  __syncthreads();
}

template <class T>
struct SmemSlab {
  uint4* x;   // [steps][active]
  uint4* dy;  // likewise
  unsigned char* end;

  __device__ __forceinline__ SmemSlab(unsigned char* smem, const GradientSlab& slab) {
    x = reinterpret_cast<uint4*>(smem);
    dy = x + slab.steps() * slab.active();
    end = reinterpret_cast<unsigned char*>(dy + slab.steps() * slab.active());
  }
};

// Calls f(slot, pixel) for each of a thread's vectors.
template <class T, class F>
__device__ __forceinline__ void for_vectors(const GradientSlab& slab, const GradientOffset<T>& tile, const F& f) {
  for (int pixel = tile.begin, slot = threadIdx.x; pixel < tile.end; pixel += slab.pixel_rows, slot += slab.active())
    f(slot, pixel);
}

// A thread begins to copy all of its vectors.
template <class T>
__device__ __forceinline__ void load_slab(const Problem& p, const Backward::Tensors& t, const GradientSlab& slab,
                                          const GradientOffset<T>& tile, const SmemSlab<T>& resident) {
  for_vectors(slab, tile, [&](int slot, int pixel) {
    const int offset = tile.offset_of(p, pixel);
    ptx::cp_async<16>(&resident.x[slot], static_cast<const T*>(t.x) + offset, true);
    ptx::cp_async<16>(&resident.dy[slot], static_cast<const T*>(t.dy) + offset, true);
  });
  ptx::cp_async_commit();
}

// A thread's sums of dz and dz * (x - mean), of each of its channels.
template <class Act, class T>
__device__ __forceinline__ void sum_slab(const GradientSlab& slab, const GradientOffset<T>& tile,
                                         const SmemSlab<T>& resident, const Channel (&channels)[kVector<T>],
                                         float2 (&sums)[kVector<T>]) {
  for_vectors(slab, tile, [&](int slot, int) {
    float x[kVector<T>];
    float dy[kVector<T>];
    unpack<T>(resident.x[slot], x);
    unpack<T>(resident.dy[slot], dy);
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) add_terms<Act>(channels[i], x[i], dy[i], sums[i]);
  });
}

// A thread computes dz anew and writes dx.
template <class Act, class T>
__device__ __forceinline__ void write_slab(const Problem& p, const Backward::Tensors& t, const GradientSlab& slab,
                                           const GradientOffset<T>& tile, const SmemSlab<T>& resident,
                                           const Channel (&channels)[kVector<T>], const SlabSums<T>& smem) {
  Correction corrections[kVector<T>];
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) corrections[i] = smem.corrections[tile.column * kVector<T> + i];
  for_vectors(slab, tile, [&](int slot, int pixel) {
    float x[kVector<T>];
    float dy[kVector<T>];
    float dx[kVector<T>];
    unpack<T>(resident.x[slot], x);
    unpack<T>(resident.dy[slot], dy);
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) dx[i] = dx_of(channels[i], corrections[i], x[i], dy[i], Act{});
    *reinterpret_cast<uint4*>(static_cast<T*>(t.dx) + tile.offset_of(p, pixel)) = pack<T>(dx);
  });
}

template <class T, class Act>
__global__ void __launch_bounds__(kSmemThreads, kSmemBlocksPerSm)
    groupnorm_backward_v06_kernel(Problem p, Backward::Tensors t, GradientSlab slab, float2* rows) {
  LADDER_DYN_SMEM(raw);
  const SmemSlab<T> resident(raw, slab);
  const SlabSums<T> smem(resident.end, slab);
  const GradientOffset<T> tile(p, slab);

  // Everything is on its way at once.
  load_slab(p, t, slab, tile, resident);
  load_channels(p, t, slab, tile, smem);
  __syncthreads();
  Channel channels[kVector<T>];
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) channels[i] = smem.channels[tile.column * kVector<T> + i];
  ptx::cp_async_wait<0>();

  // Sums of a thread, then of the block.
  float2 sums[kVector<T>] = {};
  sum_slab<Act>(slab, tile, resident, channels, sums);
  sum_rows(slab, smem, sums);
  ptx::cluster_sync();

  // Sums of the image, in the order of the blocks' ranks.
  correct(p, t, slab, tile, smem, tile.cta_rank == 0 ? rows : nullptr, [&](int i) {
    float2 sum{0, 0};
    for (int cta_rank = 0; cta_rank < slab.cluster; ++cta_rank) {
      const float2 part = ptx::ld_shared_cluster(ptx::mapa(smem.sums + i, cta_rank));
      sum.x += part.x, sum.y += part.y;
    }
    return sum;
  });
  ptx::cluster_arrive_relaxed();  // this block has read the others' sums

  write_slab<Act>(p, t, slab, tile, resident, channels, smem);
  ptx::cluster_wait();  // the others have read this block's: it may end
}

const char* supports(const Problem& p) {
  if (const char* const why = plain_only(p)) return why;
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  if (plan_smem(p).chunk == 0) return "x and dy of an image's group do not fit in the shared memory of eight blocks";
  return nullptr;
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    const GradientSlab slab = plan_smem(p);
    ladder::launch(groupnorm_backward_v06_kernel<T, decltype(act)>,
                   {.grid = slab_blocks(p, slab),
                    .block = slab_threads(slab),
                    .dynamic_smem = static_cast<std::size_t>(slab_smem_bytes(slab)),
                    .cluster = static_cast<unsigned>(slab.cluster)},
                   stream, p, t, slab, rows);
  });
  launch_parameters(p, rows, p.n, t, stream);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::supports,
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes,
                                             .min_arch = 90,
                                             .needs = "whole vectors; slabs that fit in eight blocks' shared memory"})
