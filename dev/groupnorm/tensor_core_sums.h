// Sums and sums of squares by the tensor core: what v09 and later share. A slab is the pixels of an image times a chunk of
// its channels, whole groups of them, in the shared memory of a block or of the blocks of a cluster.
#pragma once

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/backend.h"
#include "core/occupancy.h"
#include "dev/common/vectors.h"
#include "dev/groupnorm/activation.h"
#include "dev/groupnorm/statistics.h"
#include "dev/ptx/cluster.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/ldmatrix.h"
#include "dev/ptx/mbarrier.h"
#include "dev/ptx/mma.h"

namespace ladder::groupnorm::tensor_core_sums {

inline constexpr int kMaxThreads = 384;
// Two blocks of that many an SM; or six of 128, for which shared memory has room.
inline constexpr int kBlocksPerSm = 2;
inline constexpr int kTile = 32;  // pixels that a warp adds up at a time: four matrices of 8, or a lane each

// A block has `pixels` pixels of a chunk of channels, `row` vectors wide. What a kernel would have to divide by is here.
struct Plan {
  int channels = 0;  // of the chunk; 0: there is no plan
  int groups = 0;
  int width = 0;  // channels of a group
  int row = 0;
  int spread = 0;  // see place()
  int log_cluster = 0;
  int pixels = 0;         // of a block, but for the last ones of a cluster
  int tiles = 0;          // of a block; what lies beyond its pixels is zero
  int threads = 0;        // whole rows, and 8 of them or a multiple if their places are spread
  int parts = 0;          // into which a column's tiles are divided, so that every warp has its share
  unsigned by_row = 0;    // see divided()
  unsigned by_width = 0;  // likewise
  float inverse_m = 0;
  float cut = 0;  // of the square of a mean over the variance: beyond it sums are about a pivot

  __host__ __device__ int cluster() const { return 1 << log_cluster; }
  __host__ __device__ int vectors() const { return tiles * kTile * row; }
};

// a / b for a and b up to 2^14, where `by` is 2^31 / b rounded up: too large by less than a b / 2^31 < 1 / b.
inline unsigned divisor(int b) { return ((1u << 31) + b - 1) / b; }
__device__ __forceinline__ int divided(int a, unsigned by) { return static_cast<int>(__umulhi(2 * a, by)); }

// Shared memory in this order: the slab, and
struct Sums {
  float2* parts;  // [parts][channels]
  float2* ranks;  // [2][cluster][groups]: of its blocks, about zero and about pivots; without one they are not used
  ptx::Mbarrier* arrived;  // [2]: likewise
  float* scale;            // [channels]
  float* shift;            // [channels]
  float* pivot;            // [channels]

  __device__ __forceinline__ Sums(unsigned char* smem, const Plan& plan)
      : parts(reinterpret_cast<float2*>(smem)),
        ranks(parts + plan.parts * plan.channels),
        arrived(reinterpret_cast<ptx::Mbarrier*>(ranks + 2 * plan.cluster() * plan.groups)),
        scale(reinterpret_cast<float*>(arrived + 2)),
        shift(scale + plan.channels),
        pivot(shift + plan.channels) {}
};

inline std::size_t sums_bytes(const Plan& plan) {
  return sizeof(float2) * (plan.parts * plan.channels + 2 * plan.cluster() * plan.groups) + 2 * sizeof(ptx::Mbarrier) +
         3 * sizeof(float) * plan.channels;
}

// Where a pixel's vector lies in the slab: such that one column's of 8 pixels in a row, and 8 vectors in a row of any, are
// in different banks. The lower bits of the column are moved about, as many as the row has factors of two, 3 at most:
// plan.spread is how many are left of 3. The same for pixels that are 8 apart.
__device__ __forceinline__ int place(const Plan& plan, int pixel, int column) {
  return pixel * plan.row + (column ^ ((pixel & 7) >> plan.spread));
}

// What z's scale and shift are multiplied by, so that the activation needs fewer instructions, and the rest of it.
template <class T, class Act>
struct Output {
  static constexpr float kFactor = 1.0f;
  static __device__ __forceinline__ void apply(float& a, float& b) { a = Act::value(a), b = Act::value(b); }
};
// Of w = -log2(e) z: z / (1 + e^-z) = w / (-log2(e) (1 + 2^w)).
template <>
struct Output<float, Silu> {
  static constexpr float kFactor = -1.44269504088896341f;
  static __device__ __forceinline__ float inverse(float w) { return fmaf(ptx::exp2_approximate(w), kFactor, kFactor); }
  static __device__ __forceinline__ void apply(float& a, float& b) {
    a *= ptx::reciprocal_approximate(inverse(a));
    b *= ptx::reciprocal_approximate(inverse(b));
  }
};
// Of two with one reciprocal, three instructions of the special function unit for four: 1 / p = q / (p q). The product
// must not overflow, so below z = -41 the sigmoid is held at 2^-60, which moves y by less than 2^-60 of z.
template <class T>
struct Output<T, Silu> : Output<float, Silu> {
  static __device__ __forceinline__ void apply(float& a, float& b) {
    constexpr float kMax = 60;
    const float p = Output::inverse(fminf(a, kMax));
    const float q = Output::inverse(fminf(b, kMax));
    const float r = ptx::reciprocal_approximate(p * q);
    a *= r * q;
    b *= r * p;
  }
};

template <class T>
inline constexpr std::uint32_t kOnes = std::is_same_v<T, __half> ? 0x3c003c00u : 0x3f803f80u;

// Sums and sums of squares of 8 channels over every parts-th tile from `tile` on, `step` vectors apart. Each lane points at
// the vector of its pixel; a transposed matrix has a row for each channel. (x, ones) times x^T, 16 pixels at a time.
// Lane 4 i + i / 2 has channel i's on the diagonal and returns them; others return anything.
template <class T>
__device__ __forceinline__ float2 multiplied_tiles(const Plan& plan, const uint4* from, int step, int tile, int lane) {
  // NOTE: a constant would be copied into its place before each product. Behind a shuffle it has registers of its own.
  std::uint32_t one[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) one[i] = __shfl_sync(~0u, kOnes<T>, i);
  float d[4][4] = {};  // four chains of additions that truncate: the shorter the better
  const auto add = [&](const uint4* vector, float(&first)[4], float(&second)[4]) {
    std::uint32_t x[4];
    ptx::ldmatrix_x4_trans(x, vector);
    ptx::mma_m16n8k16<T>(first, {x[0], one[0], x[1], one[1]}, {x[0], x[1]});
    ptx::mma_m16n8k16<T>(second, {x[2], one[2], x[3], one[3]}, {x[2], x[3]});
  };
  for (; tile + plan.parts < plan.tiles; tile += 2 * plan.parts, from += 2 * step) {
    add(from, d[0], d[1]);
    add(from + step, d[2], d[3]);
  }
  if (tile < plan.tiles) add(from, d[0], d[1]);
  float sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = (d[0][i] + d[1][i]) + (d[2][i] + d[3][i]);
  // The lane's two columns are 2 (lane % 4) and the next.
  return lane / 4 % 2 == 0 ? float2{sums[2], sums[0]} : float2{sums[3], sums[1]};
}

// Of N values each, the sum over all lanes: lane l returns that of value l / (32 / N). Half of the lanes keep one half of
// the values, and so on, until kCount is 1.
template <int kCount, int N>
__device__ __forceinline__ float sum_over_lanes(float (&values)[N], int lane) {
  constexpr int kDistance = 16 * kCount / N;
  if constexpr (kCount > 1) {
    const bool upper = (lane & kDistance) != 0;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float low = values[i];
      const float high = values[kCount / 2 + i];
      values[i] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, kDistance);
    }
    return sum_over_lanes<kCount / 2>(values, lane);
  } else {
    float sum = values[0];
#pragma unroll
    for (int distance = kDistance; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
  }
}

// The same of a vector's channels by additions, about their pivots if any, over every pixel of the lane: pairs of a sum and
// a sum of squares, of which every lane returns one (see above).
template <class T, bool kPivots>
__device__ __forceinline__ float added_pixels(const Plan& plan, const uint4* from, int step, int pixel, int count,
                                              const float* pivots, int lane) {
  constexpr int kVec = kVector<T>;
  float sums[2 * kVec] = {};
#pragma unroll 4
  for (; pixel < count; pixel += plan.parts * kTile, from += step) {
    float values[kVec];
    unpack<T>(*from, values);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      if constexpr (kPivots) values[i] -= pivots[i];
      sums[2 * i] += values[i];
      sums[2 * i + 1] = fmaf(values[i], values[i], sums[2 * i + 1]);
    }
  }
  return sum_over_lanes<2 * kVec>(sums, lane);
}

// The sums of the block's channels, in sums.parts: a warp takes a column of vectors, or a part of it.
template <class T, bool kPivots>
__device__ __forceinline__ void add_slab(const Plan& plan, const uint4* slab, int count, int thread, const Sums& sums) {
  constexpr int kVec = kVector<T>;
  const int lane = thread & 31;
  const int step = plan.parts * kTile * plan.row;
  for (int task = thread >> 5; task < plan.row * plan.parts; task += plan.threads >> 5) {
    const int part = divided(task, plan.by_row);
    const int column = task - part * plan.row;
    const uint4* const from = slab + place(plan, part * kTile + lane, column);
    float2* const to = sums.parts + part * plan.channels + column * kVec;
    if constexpr (sizeof(T) == 2 && !kPivots) {
      const float2 sum = multiplied_tiles<T>(plan, from, step, part, lane);
      if (lane % 4 == lane / 8) to[lane / 4] = sum;
    } else {
      constexpr int kSpan = 32 / (2 * kVec);
      const float* const pivots = sums.pivot + column * kVec;
      const float sum = added_pixels<T, kPivots>(plan, from, step, part * kTile + lane, count, pivots, lane);
      if (lane % kSpan == 0) reinterpret_cast<float*>(to)[lane / kSpan] = sum;
    }
  }
}

// The sums of a group of the block, out of those of its channels.
__device__ __forceinline__ float2 sum_group(const Plan& plan, const float2* parts, int group) {
  float2 sum{0, 0};
#pragma unroll 1
  for (int part = 0; part < plan.parts; ++part) {
    const float2* const channels = parts + part * plan.channels + group * plan.width;
#pragma unroll 2
    for (int i = 0; i < plan.width; ++i) sum.x += channels[i].x, sum.y += channels[i].y;
  }
  return sum;
}

// Gives every block of the cluster the sums of this one's groups, in `ranks` of each, and waits for those of the others.
__device__ __forceinline__ void share_groups(const Plan& plan, int rank, int thread, const float2* parts, float2* ranks,
                                             ptx::Mbarrier* arrived) {
  const int count = plan.groups << plan.log_cluster;
  if (thread == 0) ptx::mbarrier_arrive_expect_tx(arrived, count * sizeof(float2));
  for (int i = thread; i < count; i += plan.threads) {
    const int group = i >> plan.log_cluster;
    const int to = i & (plan.cluster() - 1);
    ptx::st_async(ptx::mapa(ranks + rank * plan.groups + group, to), sum_group(plan, parts, group),
                  ptx::mapa(arrived, to));
  }
  ptx::mbarrier_wait_cluster(arrived, 0);
}

// Normalises the thread's vectors: `threads` apart in the slab up to `end`, and `step` elements in y.
template <class T, class Act, bool kPivots>
__device__ __forceinline__ void write(const Plan& plan, const uint4* from, const uint4* end, T* to, int step,
                                      int column, const Sums& sums) {
  constexpr int kVec = kVector<T>;
  float scale[kVec];
  float shift[kVec];
#pragma unroll
  for (int i = 0; i < kVec; i += 4) {
    *reinterpret_cast<float4*>(scale + i) = *reinterpret_cast<const float4*>(sums.scale + column * kVec + i);
    *reinterpret_cast<float4*>(shift + i) = *reinterpret_cast<const float4*>(sums.shift + column * kVec + i);
  }
  const auto vector = [&](const uint4* at, T* y) {
    float values[kVec];
    unpack<T>(*at, values);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      if constexpr (kPivots) values[i] -= sums.pivot[column * kVec + i];
      values[i] = fmaf(values[i], scale[i], shift[i]);
    }
#pragma unroll
    for (int i = 0; i < kVec; i += 2) Output<T, Act>::apply(values[i], values[i + 1]);
    *reinterpret_cast<uint4*>(y) = pack<T>(values);
  };
#pragma unroll 1
  for (; from + plan.threads < end; from += 2 * plan.threads, to += 2 * step) {
    vector(from, to);
    vector(from + plan.threads, to + step);
  }
  if (from < end) vector(from, to);
}

struct PlainCopy {
  __device__ __forceinline__ void operator()(void* to, const void* from) const { ptx::cp_async<16>(to, from, true); }
};

// A block is rank blockIdx.x % cluster of chunk blockIdx.x / cluster, of image blockIdx.y: the chunks that share a pixel's
// lines run at the same time. A thread is column threadIdx.x and pixel threadIdx.y: nothing to divide. `start` is called by
// all threads before the first load; copy(to, from) begins one, of 16 bytes. A cluster has at most kMaxCluster blocks.
template <class T, class Act, int kMaxCluster, class Start, class Copy>
__device__ __forceinline__ void normalise(const Problem& p, const Forward::Tensors& t, const Plan& plan,
                                          const Start& start, const Copy& copy) {
  constexpr int kVec = kVector<T>;
  LADDER_DYN_SMEM(smem);
  auto* const slab = reinterpret_cast<uint4*>(smem);
  const Sums sums(smem + plan.vectors() * 16, plan);
  const int column = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(threadIdx.y);
  const int thread = row * plan.row + column;
  const int rows = static_cast<int>(blockDim.y);
  const int rank = static_cast<int>(blockIdx.x) & (plan.cluster() - 1);
  const int image = static_cast<int>(blockIdx.y);
  const int chunk = static_cast<int>(blockIdx.x) >> plan.log_cluster;
  const int chunk_channel = chunk * plan.channels;
  if (plan.log_cluster > 0) {
    if (thread == 0) {
      ptx::mbarrier_init(&sums.arrived[0], 1);
      ptx::mbarrier_init(&sums.arrived[1], 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
  }

  start();

  // Neighbouring threads load neighbouring vectors; a thread's are of the same channels, `step` elements apart.
  const int first_pixel = rank * plan.pixels;
  const int count = max(min(plan.pixels, p.h * p.w - first_pixel), 0);
  const int first = image * p.h * p.w * p.c + chunk_channel;
  const int at = first + (first_pixel + row) * p.c + column * kVec;
  const int step = rows * p.c;
  const auto* const x = static_cast<const T*>(t.x);
  uint4* const own = slab + place(plan, row, column);
  const uint4* const end = slab + count * plan.row;
  {
    constexpr int kBatch = 8;
    const T* from = x + at;
    uint4* to = own;
#pragma unroll 1
    for (; to + (kBatch - 1) * plan.threads < end; to += kBatch * plan.threads, from += kBatch * step) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) copy(to + i * plan.threads, from + i * step);
    }
#pragma unroll 1
    for (; to < end; to += plan.threads, from += step) copy(to, from);
    ptx::cp_async_commit();
#pragma unroll 1
    for (; to < slab + plan.vectors(); to += plan.threads) *to = {0, 0, 0, 0};
  }

  // Meanwhile: a thread for each channel, with its group and its parameters.
  const bool has_channel = thread < plan.channels;
  int group = 0;
  float gamma = 1;
  float beta = 0;
  if (has_channel) {
    group = divided(thread, plan.by_width);
    if (t.gamma) gamma = t.gamma[chunk_channel + thread];
    if (t.beta) beta = t.beta[chunk_channel + thread];
  }
  ptx::cp_async_wait<0>();
  __syncthreads();
  add_slab<T, false>(plan, slab, count, thread, sums);
  __syncthreads();
  if (plan.log_cluster > 0) {
    ptx::cluster_wait();  // all blocks have started
    share_groups(plan, rank, thread, sums.parts, sums.ranks, &sums.arrived[0]);
  }

  // Returns whether the channel's mean is too far from zero for sums about it. All blocks of a cluster find the same.
  const auto finish = [&](const float2* ranks, float pivot) {
    float2 sum{0, 0};
    if (plan.log_cluster == 0) {
      sum = sum_group(plan, sums.parts, group);
    } else {
#pragma unroll
      for (int i = 0; i < kMaxCluster; ++i) {
        const float2 part = i < plan.cluster() ? ranks[i * plan.groups + group] : float2{0, 0};
        sum.x += part.x, sum.y += part.y;
      }
    }
    const float mean = sum.x * plan.inverse_m;  // less the pivot
    const float variance = fmaf(-mean, mean, sum.y * plan.inverse_m);
    const float rstd = rstd_of(fmaxf(variance, 0.0f));
    const float scale = gamma * rstd;
    sums.scale[thread] = Output<T, Act>::kFactor * scale;
    sums.shift[thread] = Output<T, Act>::kFactor * fmaf(-mean, scale, beta);
    if (rank == 0 && group * plan.width == thread) {
      const int index = image * p.g + chunk * plan.groups + group;
      t.mean[index] = pivot + mean;
      t.rstd[index] = rstd;
    }
    // NOTE: in pass form, so that what is no number is far.
    const bool near = mean * mean <= plan.cut * (variance + kEpsilon) && sum.y <= FLT_MAX;
    return !near;
  };
  const bool far = has_channel && finish(sums.ranks, 0.0f);
  T* const to = static_cast<T*>(t.y) + at;
  if (!__syncthreads_or(far)) {
    write<T, Act, false>(plan, own, end, to, step, column, sums);
    return;
  }

  // All over again, about the first element of each group.
  float pivot = 0;
  if (has_channel) {
    pivot = to_float(x[first + group * plan.width]);
    sums.pivot[thread] = pivot;
  }
  __syncthreads();
  add_slab<T, true>(plan, slab, count, thread, sums);
  __syncthreads();
  float2* const ranks = sums.ranks + plan.cluster() * plan.groups;
  if (plan.log_cluster > 0) share_groups(plan, rank, thread, sums.parts, ranks, &sums.arrived[1]);
  if (has_channel) finish(ranks, pivot);
  __syncthreads();
  write<T, Act, true>(plan, own, end, to, step, column, sums);
}

// The mean's square may be this many variances, r. If sums of |x| and of x^2 have relative errors of e 2^-24, the variance
// gets 1 + r of them from its sum of squares and 2 sqrt(r (1 + r)) from the mean, and some 2 + 4 r roundings: half of that
// is rstd's, (1.5 e + 2) r + e + 1 of 2^-24 at most, where the reference allows 1 + 8 sqrt(m). A chain of s matrix products
// truncates s times while the sums grow: e = s, or 2.5 s where products of 22 bits are cut as well. z loses
// 2 sqrt(r) + sqrt(1 + r) e of 2^-24 deviations, which an fp32 y would show (there are no products then, and e is that of
// rounded sums): hence the least of that, a bound for small groups and a constant.
inline float cut_of(const Problem& p, const Plan& plan) {
  const float most = p.dtype == Dtype::f32 ? 4 : 16;
  const float root = std::sqrt(static_cast<float>(p.group_size()));
  const float e = 2.5f * static_cast<float>(ceil_div(plan.tiles, 2 * plan.parts));
  return std::max(std::min({most, root / 4, (8 * root - e) / (1.5f * e + 2)}), 0.0f);
}

inline int blocks_of(const Problem& p, const Plan& plan) { return p.n * (p.c / plan.channels) * plan.cluster(); }

// Least numbers of threads: whole warps and whole rows, 8 of these if their places are spread.
inline int thread_step(const Plan& plan) { return std::lcm(plan.spread < 3 ? 8 * plan.row : plan.row, 32); }

// A chunk of so many of the problem's groups, if these are whole vectors.
inline std::optional<Plan> chunk_of(const Problem& p, int groups) {
  const int width = p.channels_per_group();
  const int bytes = groups * width * static_cast<int>(size_of(p.dtype));
  if (p.g % groups != 0 || bytes % 16 != 0) return {};
  Plan plan{.channels = groups * width, .groups = groups, .width = width, .row = bytes / 16};
  plan.spread = 3 - std::min(std::countr_zero(static_cast<unsigned>(plan.row)), 3);
  return plan;
}

inline std::int64_t slab_bytes(const Plan& plan) { return std::int64_t{16} * plan.row * kTile * plan.tiles; }

// What follows from the chunk, the cluster and the threads.
inline void complete(const Problem& p, Plan& plan) {
  const int warps = plan.threads / 32;
  plan.parts = std::min(warps / std::gcd(warps, plan.row), plan.tiles);
  plan.by_row = divisor(plan.row);
  plan.by_width = divisor(plan.width);
  plan.inverse_m = static_cast<float>(1.0 / static_cast<double>(p.group_size()));
  plan.cut = cut_of(p, plan);
}

// What versions differ in.
struct TuningParameters {
  int least_even_cluster = 1;        // from this size on there should be several blocks an SM
  int least_pixels = 0;              // of a block, below which it is not cut for that
  int good_threads = 256;            // of an SM
  int column_threads = kMaxThreads;  // up to which a block has a warp for each column, however few are good
};

// A warp for each column, or several: then all have the same number of tiles to add up. What a thread does but once is
// worth some vectors; but an SM whose blocks are few needs warps enough to overlap each other's latencies. 0: a row is too
// wide.
inline int threads_of(const Problem& p, const Plan& plan, const TuningParameters& tuning) {
  constexpr int kGoodVectors = 16;  // of a thread
  const int blocks_of_sm = ceil_div(blocks_of(p, plan), backend::device().num_sms);
  const int good = std::max(plan.pixels * plan.row / kGoodVectors, tuning.good_threads / blocks_of_sm);
  const int step =
      32 * plan.row <= std::min(std::max(good, tuning.column_threads), kMaxThreads) ? 32 * plan.row : thread_step(plan);
  if (step > kMaxThreads) return 0;
  return std::max(std::min(good, kMaxThreads) / step * step, step);
}

// The slab of rows of 128 bytes or as near below as there is, else the least beyond: four sectors of every pixel. A cluster
// is as small as keeps a block's share good and, to a version's tuning, gives an SM some blocks; if clusters alone cannot do
// that, narrower rows do. All fitted to sweeps of every plan at seven shapes on an H200, of which they take the best or one
// within 4 %.
inline Plan plan_of(const Problem& p, const TuningParameters& tuning) {
  constexpr int kGoodRow = 128 / 16;
  constexpr int kMinRow = 64 / 16;
  constexpr int kGoodBytes = 64 << 10;
  constexpr int kMaxBytes = 100 << 10;  // so that two blocks fit an SM
  constexpr int kGoodBlocks = 3;        // of an SM
  constexpr int kMaxLogCluster = std::bit_width(static_cast<unsigned>(kMaxClusterBlocks)) - 1;
  Plan best;
  for (int groups = 1; groups <= p.g; ++groups) {
    std::optional<Plan> chunk = chunk_of(p, groups);
    if (!chunk) continue;
    Plan& plan = *chunk;
    if (best.channels > 0 && plan.row > kGoodRow) break;
    bool even = false;
    for (plan.log_cluster = 0; plan.log_cluster <= kMaxLogCluster; ++plan.log_cluster) {
      plan.pixels = ceil_div(p.pixels(), plan.cluster());
      plan.tiles = ceil_div(plan.pixels, kTile);
      even =
          plan.cluster() < tuning.least_even_cluster || blocks_of(p, plan) >= kGoodBlocks * backend::device().num_sms;
      const bool cut_further = slab_bytes(plan) > kGoodBytes || (!even && plan.pixels / 2 >= tuning.least_pixels);
      if (!cut_further || plan.log_cluster == kMaxLogCluster) break;
    }
    plan.threads = threads_of(p, plan, tuning);
    if (plan.threads == 0 || slab_bytes(plan) > kMaxBytes) continue;
    if (!even && best.row >= kMinRow) break;
    complete(p, plan);
    best = plan;
  }
  return best;
}

inline LaunchConfig config_of(const Problem& p, const Plan& plan) {
  const auto cluster = static_cast<unsigned>(plan.cluster());
  return {.grid = {static_cast<unsigned>(p.c / plan.channels) * cluster, static_cast<unsigned>(p.n)},
          .block = {static_cast<unsigned>(plan.row), static_cast<unsigned>(plan.threads / plan.row)},
          .dynamic_smem = std::size_t{16} * plan.vectors() + sums_bytes(plan),
          .cluster = cluster};
}

inline const char* supports(const Problem& p, const Plan& plan) {
  constexpr int kMaxImages = 65535;  // of a grid's second dimension
  if (p.n > kMaxImages) return "more images than a grid has rows";
  if (plan.channels > 0) return nullptr;
  return "no number of groups is whole 16-byte vectors that fit a cluster and 384 threads";
}

}  // namespace ladder::groupnorm::tensor_core_sums
