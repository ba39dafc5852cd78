// Idea:   each thread sums one group: it reads the group's words of many pixels from the slab in shared memory,
//         whichever vectors it loaded itself. Slabs are cut such that one block an SM holds the tensor, if it fits.
// Parent: v06.
// Why:    v06's threads have sums for each pair of channels of a vector, 8 floats that go through shared memory and a
//         second reduction. A group's owner has two floats, which shuffles and one word a warp finish, every warp for
//         itself. The first half of the slab is summed while the second is in flight. Limiter: all blocks of a wave
//         load, then compute.
// Needs:  whole vectors in a pixel; a power of two of groups, 32 at most, that are whole vectors together; groups of whole
//         words; a slab of 8 x 64 KB at most; sm_90.

#include <algorithm>
#include <numeric>

#include "core/backend.h"
#include "core/occupancy.h"
#include "dev/common/vectors.h"
#include "dev/groupnorm/activation.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/maximum.h"
#include "dev/ptx/st_shared_cluster.h"

namespace ladder::groupnorm {
namespace {

constexpr int kMaxThreads = 384;
// Three such blocks fit an SM at 56 registers a thread, enough for the short activations: some load while others compute.
template <class Act>
[[maybe_unused]] constexpr int kBlocksPerSm =
    std::is_same_v<Act, Identity> || std::is_same_v<Act, Relu> || std::is_same_v<Act, Silu> ? 3 : 2;
constexpr int kMaxWarps = kMaxThreads / 32;
constexpr int kMaxGroups = 32;  // of a block: a lane each

// A block has `pixels` pixels of a chunk of `groups` groups, `row` vectors wide.
struct Plan {
  int channels = 0;  // of the chunk; 0: no plan
  int groups = 0;
  int row = 0;
  int cluster = 1;
  int pixels = 0;
  int threads = 0;

  __host__ __device__ int vectors() const { return pixels * row; }
};

// Shared memory after the slab: sums of the groups, from each warp and from each block of the cluster.
struct Sums {
  float2 warps[kMaxWarps][kMaxGroups];
  float2 cluster[kMaxClusterBlocks][kMaxGroups];
};

template <class T>
__device__ __forceinline__ void add_word(unsigned word, float pivot, float2& sum) {
  const auto add = [&](float value) {
    const float apart = value - pivot;
    sum.x += apart;
    sum.y = fmaf(apart, apart, sum.y);
  };
  if constexpr (sizeof(T) == 4) {
    add(__uint_as_float(word));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    add(__uint_as_float(word << 16));
    add(__uint_as_float(word & 0xffff0000u));
  } else {
    add(__half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xffffu))));
    add(__half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16))));
  }
}

template <int kWords>
__device__ __forceinline__ void read_words(const unsigned* from, unsigned* words) {
  constexpr int kWide = kWords % 4 == 0 ? 4 : kWords % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int i = 0; i < kWords; i += kWide) {
    if constexpr (kWide == 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(from + i);
      words[i] = v.x, words[i + 1] = v.y, words[i + 2] = v.z, words[i + 3] = v.w;
    } else if constexpr (kWide == 2) {
      const uint2 v = *reinterpret_cast<const uint2*>(from + i);
      words[i] = v.x, words[i + 1] = v.y;
    } else {
      words[i] = from[i];
    }
  }
}

// Adds up the thread's words of the slab [pixels][groups][kWords], of all sweeps from `sweep` on that end by `limit`;
// `last`: and of a partial last sweep. In a sweep of the block over the slab, thread t owns the t-th pixel and group;
// the group is always the same. Several sweeps are read at once, so that their latencies overlap.
template <class T, int kWords>
__device__ __forceinline__ void add_sweeps(const unsigned* slab, int& sweep, int limit, bool last, float pivot,
                                           float2& sum) {
  constexpr int kBatch = kWords < 8 ? 8 / kWords : 1;
  const int stride = static_cast<int>(blockDim.x) * kWords;
  const unsigned* const own = slab + threadIdx.x * kWords;
  float2 other{0, 0};
  for (; (sweep + kBatch) * stride <= limit; sweep += kBatch) {
    unsigned words[kBatch * kWords];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) read_words<kWords>(own + (sweep + i) * stride, words + i * kWords);
#pragma unroll
    for (int i = 0; i < kBatch * kWords; ++i) add_word<T>(words[i], pivot, i % 2 ? other : sum);
  }
  for (; last ? sweep * stride + static_cast<int>(threadIdx.x) * kWords < limit : (sweep + 1) * stride <= limit;
       ++sweep) {
    unsigned words[kWords];
    read_words<kWords>(own + sweep * stride, words);
#pragma unroll
    for (int i = 0; i < kWords; ++i) add_word<T>(words[i], pivot, sum);
  }
  sum.x += other.x;
  sum.y += other.y;
}

template <class T>
__device__ __forceinline__ void add_sweeps(int words, const unsigned* slab, int& sweep, int limit, bool last,
                                           float pivot, float2& sum) {
  switch (words) {
#define LADDER_WORDS(n) \
  case n:               \
    return add_sweeps<T, n>(slab, sweep, limit, last, pivot, sum);
    LADDER_WORDS(1)
    LADDER_WORDS(2)
    LADDER_WORDS(3)
    LADDER_WORDS(4)
    LADDER_WORDS(5)
    LADDER_WORDS(6)
    LADDER_WORDS(7)
    LADDER_WORDS(8)
    LADDER_WORDS(10)
    LADDER_WORDS(12)
    LADDER_WORDS(14)
    LADDER_WORDS(16)
#undef LADDER_WORDS
  }
}

bool has_words(int words) { return words <= 8 || (words <= 16 && words % 2 == 0); }

// Returns the sum over the lanes that have the same group, in a fixed order.
__device__ __forceinline__ float2 sum_over_lanes(float2 sum, int groups) {
  for (int distance = 16; distance >= groups; distance /= 2) {
    sum.x += __shfl_xor_sync(~0u, sum.x, distance);
    sum.y += __shfl_xor_sync(~0u, sum.y, distance);
  }
  return sum;
}

template <class T, class Act>
__global__ void __launch_bounds__(kMaxThreads, kBlocksPerSm<Act>)
    groupnorm_forward_v08_kernel(Problem p, Forward::Tensors t, Plan plan) {
  constexpr int kVec = kVector<T>;
  LADDER_DYN_SMEM(smem);
  auto* const slab = reinterpret_cast<uint4*>(smem);
  auto& sums = *reinterpret_cast<Sums*>(smem + plan.vectors() * 16);
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int rank = static_cast<int>(blockIdx.x) % plan.cluster;
  const int chunks = p.c / plan.channels;
  const int chunk = static_cast<int>(blockIdx.x) / plan.cluster % chunks;
  const int image = static_cast<int>(blockIdx.x) / plan.cluster / chunks;
  if (plan.cluster > 1) ptx::cluster_arrive_relaxed();

  // Copy the slab in two cp.async groups. Neighbouring threads load neighbouring vectors; a thread's vectors have the
  // same channels and are `step` elements apart.
  const int first_row = thread / plan.row;
  const int column = thread - first_row * plan.row;
  const int first = image * p.h * p.w * p.c + chunk * plan.channels;
  const int at = first + (rank * plan.pixels + first_row) * p.c + column * kVec;
  const int step = threads / plan.row * p.c;
  const auto* const x = static_cast<const T*>(t.x);
  const int half = (plan.vectors() / threads + 1) / 2 * threads;
  {
    const T* from = x + at;
    int v = thread;
#pragma unroll 4
    for (; v < half; v += threads, from += step) ptx::cp_async<16>(slab + v, from, true);
    ptx::cp_async_commit();
#pragma unroll 4
    for (; v < plan.vectors(); v += threads, from += step) ptx::cp_async<16>(slab + v, from, true);
    ptx::cp_async_commit();
  }

  // Meanwhile load the pivot of the lane's group, the same for all blocks that share the group, and the parameters of
  // the thread's channels.
  const int width = p.c / p.g;
  const float pivot = to_float(x[first + lane % plan.groups * width]);
  const int c0 = chunk * plan.channels + column * kVec;
  float scale[kVec];
  float shift[kVec];
#pragma unroll
  for (int i = 0; i < kVec; i += 4) {
    const float4 gamma = t.gamma ? *reinterpret_cast<const float4*>(t.gamma + c0 + i) : float4{1, 1, 1, 1};
    const float4 beta = t.beta ? *reinterpret_cast<const float4*>(t.beta + c0 + i) : float4{0, 0, 0, 0};
    scale[i] = gamma.x, scale[i + 1] = gamma.y, scale[i + 2] = gamma.z, scale[i + 3] = gamma.w;
    shift[i] = beta.x, shift[i + 1] = beta.y, shift[i + 2] = beta.z, shift[i + 3] = beta.w;
  }

  // Sum the first half of the slab while the second is in flight.
  const int words = width * static_cast<int>(sizeof(T)) / 4;
  float2 sum{0, 0};
  int sweep = 0;
  ptx::cp_async_wait<1>();
  __syncthreads();
  add_sweeps<T>(words, reinterpret_cast<const unsigned*>(slab), sweep, half * 4, false, pivot, sum);
  ptx::cp_async_wait<0>();
  __syncthreads();
  add_sweeps<T>(words, reinterpret_cast<const unsigned*>(slab), sweep, plan.vectors() * 4, true, pivot, sum);

  // Add up the sums of all warps, then of all blocks, in every warp: lane l has the sums of group l % groups.
  sum = sum_over_lanes(sum, plan.groups);
  if (lane < plan.groups) sums.warps[warp][lane] = sum;
  __syncthreads();
  const auto add_parts = [&](const float2(*parts)[kMaxGroups], int count) {
    float2 total{0, 0};
    for (int i = lane / plan.groups; i < count; i += 32 / plan.groups) {
      const float2 part = parts[i][lane % plan.groups];
      total.x += part.x;
      total.y += part.y;
    }
    return sum_over_lanes(total, plan.groups);
  };
  sum = add_parts(sums.warps, threads / 32);
  if (plan.cluster > 1) {
    ptx::cluster_wait();  // all blocks have started
    for (int to = warp; to < plan.cluster; to += threads / 32) {
      if (lane < plan.groups) ptx::st_shared_cluster(ptx::mapa(&sums.cluster[rank][lane], to), sum);
    }
    ptx::cluster_sync();
    sum = add_parts(sums.cluster, plan.cluster);
  }

  // Mean and rstd of the lane's group.
  const float inverse_m = 1.0f / static_cast<float>(p.h * p.w * width);
  const float mean = sum.x * inverse_m;  // less the pivot
  const float rstd = rsqrtf(ptx::maximum(fmaf(-mean, mean, sum.y * inverse_m), 0.0f) + p.eps);
  if (rank == 0 && thread < plan.groups) {
    const int group = image * p.g + chunk * plan.groups + thread;
    t.mean[group] = pivot + mean;
    t.rstd[group] = rstd;
  }

  // Normalise, and store. Each channel takes pivot, rstd and mean from a lane that has its group.
  float pivots[kVec];
  int group = column * kVec / width;
  int into = column * kVec - group * width;
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    pivots[i] = __shfl_sync(~0u, pivot, group);
    scale[i] *= __shfl_sync(~0u, rstd, group);
    shift[i] = fmaf(-__shfl_sync(~0u, mean, group), scale[i], shift[i]);
    if (++into == width) into = 0, ++group;
  }
  T* to = static_cast<T*>(t.y) + at;
#pragma unroll 2
  for (int v = thread; v < plan.vectors(); v += threads, to += step) {
    float values[kVec];
    unpack<T>(slab[v], values);
#pragma unroll
    for (int i = 0; i < kVec; ++i) values[i] = Act::value(fmaf(values[i] - pivots[i], scale[i], shift[i]));
    *reinterpret_cast<uint4*>(to) = pack<T>(values);
  }
}

// Returns the threads of a plan, a multiple of 32 and of a row: as many as leave a thread at least `vectors` vectors,
// but at least one such multiple. 0: a row is too wide.
int threads_of(const Plan& plan, int vectors) {
  const int step = std::lcm(plan.row, 32);
  const int wanted = std::min(plan.vectors() / vectors, kMaxThreads) / step * step;
  return wanted > 0 || step > kMaxThreads ? wanted : step;
}

// Chooses by measurements. If one block an SM can hold the tensor, the more blocks the better, then the wider the rows.
// Otherwise blocks of up to 48 KB, several an SM, with rows of at least 64 bytes.
Plan plan_of(const Problem& p) {
  constexpr int kLoneBytes = 136 << 10;
  constexpr int kSharedBytes = 48 << 10;
  constexpr int kMaxBytes = 64 << 10;
  constexpr int kGoodRow = 64 / 16;
  const int element = static_cast<int>(size_of(p.dtype));
  const int width = p.channels_per_group();
  Plan lone, shared;
  if (!whole_vectors(p) || width * element % 4 != 0 || !has_words(width * element / 4)) return {};
  for (int groups = 1; groups <= std::min(p.g, kMaxGroups); groups *= 2) {
    if (p.g % groups != 0 || groups * width * element % 16 != 0) continue;
    for (int cluster = 1; cluster <= kMaxClusterBlocks && p.pixels() % cluster == 0; cluster *= 2) {
      Plan plan{.channels = groups * width,
                .groups = groups,
                .row = groups * width * element / 16,
                .cluster = cluster,
                .pixels = p.pixels() / cluster};
      const std::int64_t bytes = std::int64_t{16} * plan.pixels * plan.row;
      const auto blocks = [&](const Plan& each) { return p.n * (p.c / std::max(each.channels, 1)) * each.cluster; };
      plan.threads = bytes <= kLoneBytes ? threads_of(plan, 2) : 0;
      if (plan.threads > 0 && blocks(plan) <= backend::device().num_sms &&
          (lone.channels == 0 || blocks(plan) > blocks(lone) || (blocks(plan) == blocks(lone) && cluster == 1))) {
        lone = plan;
      }
      plan.threads = bytes <= kMaxBytes ? threads_of(plan, 8) : 0;
      const bool fits = bytes <= kSharedBytes || cluster == kMaxClusterBlocks;
      if (plan.threads > 0 && fits && shared.row < kGoodRow && plan.channels > shared.channels) shared = plan;
    }
  }
  // Reject one block an SM if it leaves most SMs idle.
  const bool full = lone.channels > 0 && 2 * p.n * (p.c / lone.channels) * lone.cluster > backend::device().num_sms;
  return full || shared.channels == 0 ? lone : shared;
}

const char* supports(const Problem& p) {
  if (const char* const why = plain_inputs_only(p)) return why;
  return plan_of(p).channels > 0 ? nullptr
                                 : "no power of two of groups is whole vectors of whole words, or none fits 8 x 64 KB";
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  const Plan plan = plan_of(p);
  const LaunchConfig config{.grid = static_cast<unsigned>(p.n * (p.c / plan.channels) * plan.cluster),
                            .block = static_cast<unsigned>(plan.threads),
                            .dynamic_smem = std::size_t{16} * plan.vectors() + sizeof(Sums),
                            .cluster = static_cast<unsigned>(plan.cluster)};
  with_storage_type(p.dtype, [&](auto element) {
    dispatch(p.activation, [&](auto act) {
      ladder::launch(groupnorm_forward_v08_kernel<decltype(element), decltype(act)>, config, stream, p, t, plan);
    });
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Forward, {.launch = ladder::groupnorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::groupnorm::supports,
                                            .min_arch = 90})
