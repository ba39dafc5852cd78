// dz kept as fp32 in shared memory between the pass that makes the sums and the pass that uses them: what v09 and later
// share.
#pragma once

#include "dev/common/quads.h"
#include "dev/groupnorm/gradient_slab.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/ptx/cluster.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::groupnorm::dz_kept {

inline constexpr int kMaxThreads = 256;
inline constexpr int kThreadsPerSm = 768;  // that have 80 registers each
inline constexpr int kQuad = 4;            // channels of a thread
inline constexpr int kStepsAtOnce = 2;     // pixels that a thread has in hand

// A block has `each` pixels of a chunk of channels, a thread every so many pixels of four channels. What a kernel would
// have to divide for is here.
struct Plan {
  int chunk = 0;  // channels, whole groups; 0: there is no plan
  int width = 0;  // channels of a group
  int groups = 0;
  unsigned by_width = 0;  // 2^20 / width, rounded up
  int log_channels = 0;   // of a warp's lanes, those for each group: one for each of its channels, if a warp has them
  int log_ranks = 0;      // likewise, if all groups of the block have a warp together
  int log_cluster = 0;
  int each = 0;
  int quads = 0;  // of a pixel
  int rows = 0;   // pixels that a block's threads take at a time
  int warps = 0;
  int steps = 0;          // times that they do; a multiple of kStepsAtOnce
  int half = 0;           // likewise: those that are copied first
  int senders = 0;        // of sums of a channel in a block: warps, or rows where those are wider
  int parts = 0;          // places for them: as many, or half as many, rounded up, if a version folds
  unsigned by_quads = 0;  // 65536 / quads, rounded up
  float inverse_m = 0;
  bool reads_once = false;  // what is loaded leaves the L2 before anything else does, where the version can say so

  __host__ __device__ int cluster() const { return 1 << log_cluster; }
  __host__ __device__ int threads() const { return warps * 32; }
};

// A block's slab: for each warp and step x of its threads, then dz, of which dy is the first half or, as fp32, all. Two
// threads share a vector of 16-bit elements: the even one copies it at even steps, the odd one at odd steps.
template <class T>
struct SlabLayout {
  static constexpr int kSharers = sizeof(T) == 2 ? 2 : 1;
  static constexpr int kQuadBytes = kQuad * sizeof(T);
  static constexpr int kDz = 32 * kQuadBytes;
  static constexpr int kStepBytes = kDz + 32 * kQuad * 4;

  static __host__ __device__ int bytes(const Plan& plan) { return plan.steps * plan.warps * kStepBytes; }

  // Where a lane's dz goes in a step: 16 bytes of 32 that two threads have, in the order that gives each eight threads all
  // banks.
  static __device__ __forceinline__ int dz_at(int lane) {
    return kDz + (kSharers == 1 ? lane * 16 : lane % 2 * 256 + ((lane / 2 * 16) ^ (lane % 2 * 64)));
  }
};

// Where a block and a thread of it are: a block is rank blockIdx.x % cluster of chunk blockIdx.x / cluster, of image
// blockIdx.y.
struct Place {
  int warp, lane;
  int row, column;  // a quad
  int image, chunk, rank;
  int first, end;  // the thread's first pixel and the block's last, and one more; first is `end`: the thread has none
  int image_at;    // of the tensor, the image's first element of the chunk

  __device__ __forceinline__ Place(const Problem& p, const Plan& plan) {
    const unsigned thread = threadIdx.x;
    warp = thread / 32;
    lane = thread % 32;
    row = thread * plan.by_quads >> 16;
    column = static_cast<int>(thread) - row * plan.quads;
    image = blockIdx.y;
    chunk = blockIdx.x >> plan.log_cluster;
    rank = blockIdx.x - (chunk << plan.log_cluster);
    const int begin = rank * plan.each;
    end = min(begin + plan.each, p.h * p.w);
    first = row < plan.rows ? begin + row : end;
    image_at = image * p.h * p.w * p.c + chunk * plan.chunk;
  }
};

__device__ __forceinline__ void load_quad(const float* from, float (&values)[kQuad]) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  values[0] = v.x, values[1] = v.y, values[2] = v.z, values[3] = v.w;
}

// Of mean and rstd, the entry of the chunk's group i.
__device__ __forceinline__ int image_group(const Problem& p, const Plan& plan, const Place& place, int i) {
  return place.image * p.g + place.chunk * plan.groups + i;
}

// Behind the slab, what a block knows of its channels. What a version adds to it says gradient().
struct Sums {
  static constexpr int kThreadsPerSm = dz_kept::kThreadsPerSm;

  float* scale;            // [chunk], rstd * gamma
  float2* parts;           // [parts][chunk], of dz and dz * (x - mean)
  ptx::Mbarrier* arrived;  // says that the cluster's sums are there

  __device__ __forceinline__ Sums(unsigned char* smem, const Plan& plan) {
    scale = reinterpret_cast<float*>(smem);
    parts = reinterpret_cast<float2*>(scale + plan.chunk);
  }

  __device__ __forceinline__ void copy(void* to, const void* from, bool valid) const {
    ptx::cp_async<16>(to, from, valid);
  }
};

// For blocks that send each other what they have of every channel.
struct ChannelSums : Sums {
  using Row = float2;  // of a channel of an image: terms of dbeta and dgamma
  static constexpr bool kFolds = false;
  static int most_cluster() { return kMaxClusterBlocks; }

  float* mean;       // [chunk]
  float* rstd;       // [chunk]
  float2* exchange;  // [cluster][chunk], of all blocks
  // In place of the first two parts: the image's sums times rstd * gamma, and what the groups make of them.
  float2* weighted;         // [chunk]
  Correction* corrections;  // [chunk]

  static __host__ __device__ int room(const Plan& plan) { return plan.parts < 2 ? 2 : plan.parts; }
  static int bytes(const Plan& plan) {
    return plan.chunk * (12 + 8 * room(plan) + (plan.log_cluster > 0 ? 8 * plan.cluster() : 0)) +
           static_cast<int>(sizeof(ptx::Mbarrier));
  }
  __device__ __forceinline__ ChannelSums(unsigned char* smem, const Plan& plan) : Sums(smem + 8 * plan.chunk, plan) {
    mean = reinterpret_cast<float*>(smem);
    rstd = mean + plan.chunk;
    exchange = parts + room(plan) * plan.chunk;
    arrived = reinterpret_cast<ptx::Mbarrier*>(exchange + plan.cluster() * plan.chunk);
    weighted = parts;
    corrections = reinterpret_cast<Correction*>(parts + plan.chunk);
  }

  struct Fetched {};
  static __device__ __forceinline__ Fetched fetch_channels(const Problem&, const Backward::Tensors&, const Plan&,
                                                           const Place&) {
    return {};
  }
  __device__ __forceinline__ void load_channels(const Problem& p, const Backward::Tensors& t, const Plan& plan,
                                                const Place& place, const Fetched&) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < plan.chunk; i += plan.threads()) {
      const int group = image_group(p, plan, place, i / plan.width);
      rstd[i] = t.rstd[group];
      mean[i] = t.mean[group];
      scale[i] = rstd[i] * gamma_of(t, place.chunk * plan.chunk + i);
    }
  }
  __device__ __forceinline__ void load_means(const Plan&, const Place& place, float (&values)[kQuad]) const {
    load_quad(mean + place.column * kQuad, values);
  }

  template <bool kCluster>
  __device__ __forceinline__ void correct(const Problem& p, const Plan& plan, const Place& place, Row* rows,
                                          float (&offset)[kQuad], float (&slope)[kQuad]) const;
};

// Whether the lanes of a warp share out what they add up: else sum_rows() adds column by column.
__host__ __device__ constexpr bool shares_out(int quads) { return quads < 32 && (quads & (quads - 1)) == 0; }

// Lanes `distance` apart share out the first kCount of their values: each adds up half of them for both.
template <int kCount>
__device__ __forceinline__ void halve(float (&values)[2 * kQuad], int lane, int distance) {
  const bool upper = (lane & distance) != 0;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float kept = upper ? values[kCount / 2 + i] : values[i];
    const float given = upper ? values[i] : values[kCount / 2 + i];
    values[i] = kept + __shfl_xor_sync(~0u, given, distance);
  }
}

// A block's first step: it tells its cluster that it is there.
template <bool kCluster>
__device__ __forceinline__ void announce_start(const Sums& smem) {
  if constexpr (kCluster) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(smem.arrived, 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
  }
}

// Adds up the sums of a warp's rows into its part, or leaves those of each row as parts. kFolds: where there are fewer parts,
// the last senders add theirs to what the first have left.
template <bool kFolds>
__device__ __forceinline__ void sum_rows(const Plan& plan, const Sums& smem, const Place& place,
                                         float (&values)[2 * kQuad]) {
  const int lane = place.lane;
  if (shares_out(plan.quads)) {
    auto* part = reinterpret_cast<float*>(smem.parts + place.warp * plan.chunk + place.column * kQuad);
    halve<8>(values, lane, 16);
    part += lane / 16 * 4;
    if (plan.quads == 16) {
      *reinterpret_cast<float4*>(part) = {values[0], values[1], values[2], values[3]};
      return;
    }
    halve<4>(values, lane, 8);
    part += lane / 8 % 2 * 2;
    if (plan.quads == 8) {
      *reinterpret_cast<float2*>(part) = {values[0], values[1]};
      return;
    }
    halve<2>(values, lane, 4);
#pragma unroll 1
    for (int distance = 2; distance >= plan.quads; distance /= 2) {
      values[0] += __shfl_xor_sync(~0u, values[0], distance);
    }
    if (lane % 4 < plan.quads) part[lane / 4 % 2] = values[0];
    return;
  }
  // A lane adds what lanes behind it have, those of its own column, as far as there are any.
#pragma unroll 1
  for (int distance = plan.quads; distance < 32; distance *= 2) {
#pragma unroll
    for (int i = 0; i < 2 * kQuad; ++i) {
      const float other = __shfl_down_sync(~0u, values[i], distance);
      if (lane + distance < 32) values[i] += other;
    }
  }
  const int index = plan.quads < 32 ? place.warp : place.row;
  const bool sends = plan.quads < 32 ? lane < plan.quads : place.row < plan.rows;
  const auto put = [&](int to) {
    float2* const part = smem.parts + to * plan.chunk + place.column * kQuad;
    *reinterpret_cast<float4*>(part) = {values[0], values[1], values[2], values[3]};
    *reinterpret_cast<float4*>(part + 2) = {values[4], values[5], values[6], values[7]};
  };
  if (sends && index < plan.parts) put(index);
  if constexpr (kFolds) {
    if (plan.parts == plan.senders) return;
    __syncthreads();
    if (!sends || index < plan.parts) return;
    const auto* const part =
        reinterpret_cast<const float*>(smem.parts + (index - plan.parts) * plan.chunk + place.column * kQuad);
#pragma unroll
    for (int i = 0; i < 2 * kQuad; ++i) values[i] += part[i];
    put(index - plan.parts);
  }
}

// Of `count` rows [chunk], the sum of column i.
__device__ __forceinline__ float2 sum_column(const float2* rows, int count, int chunk, int i) {
  float2 sum{0, 0};
#pragma unroll 4
  for (int row = 0; row < count; ++row) {
    const float2 v = rows[row * chunk + i];
    sum.x += v.x, sum.y += v.y;
  }
  return sum;
}

// Every block sends its sums to all of its cluster.
template <bool kCluster>
__device__ __forceinline__ void ChannelSums::correct(const Problem& p, const Plan& plan, const Place& place, Row* rows,
                                                     float (&offset)[kQuad], float (&slope)[kQuad]) const {
  if constexpr (kCluster) {
    ptx::cluster_wait();  // all blocks have started
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(arrived, (plan.chunk << plan.log_cluster) * sizeof(float2));
#pragma unroll 1
    for (int i = threadIdx.x; i < plan.chunk << plan.log_cluster; i += plan.threads()) {
      const int channel = i >> plan.log_cluster;
      const float2 sum = sum_column(parts, plan.parts, plan.chunk, channel);
      const int to = i & (plan.cluster() - 1);
      ptx::st_async(ptx::mapa(exchange + place.rank * plan.chunk + channel, to), sum, ptx::mapa(arrived, to));
    }
    __syncthreads();  // nobody reads the parts any more
    ptx::mbarrier_wait_cluster(arrived, 0);
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < plan.chunk; i += plan.threads()) {
    const float2 sum =
        kCluster ? sum_column(exchange, plan.cluster(), plan.chunk, i) : sum_column(parts, plan.parts, plan.chunk, i);
    if (rows && place.rank == 0) rows[place.image * p.c + place.chunk * plan.chunk + i] = {sum.x, sum.y * rstd[i]};
    weighted[i] = {scale[i] * sum.x, scale[i] * sum.y};
  }
  __syncthreads();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * plan.width; i < plan.chunk; i += plan.threads() * plan.width) {
    float2 sum{0, 0};
#pragma unroll 2
    for (int c = i; c < i + plan.width; ++c) sum.x += weighted[c].x, sum.y += weighted[c].y;
    const Correction correction{.offset = -plan.inverse_m * sum.x,
                                .slope = -plan.inverse_m * rstd[i] * rstd[i] * sum.y};
#pragma unroll 2
    for (int c = i; c < i + plan.width; ++c) corrections[c] = correction;
  }
  __syncthreads();

#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    const Correction correction = corrections[place.column * kQuad + i];
    offset[i] = correction.offset, slope[i] = correction.slope;
  }
}

// Of a thread's channels.
struct Channels {
  float (&mean)[kQuad];
  float (&scale)[kQuad];  // rstd * gamma
  float (&beta)[kQuad];
};

// A thread puts the dz of its quads where their dy were, as the slab's two groups of copies arrive, and adds up two sums of
// each channel: of dz, and of dz * (x - mean).
template <class T, class Act>
__device__ __forceinline__ void make_dz(const Plan& plan, const unsigned char* own, unsigned char* own_dz,
                                        const Channels& channels, float (&sums)[2 * kQuad]) {
  using Layout = SlabLayout<T>;
  int at = 0;
  int left = plan.half;
  ptx::cp_async_wait<1>();
#pragma unroll 1
  for (int group = 0; group < 2; ++group) {
    __syncwarp();
#pragma unroll 1
    for (; left > 0; left -= kStepsAtOnce, at += kStepsAtOnce * Layout::kStepBytes) {
      Quad<T> x_bits[kStepsAtOnce];
      Quad<T> dy_bits[kStepsAtOnce];
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        x_bits[s] = *reinterpret_cast<const Quad<T>*>(own + at + s * Layout::kStepBytes);
        dy_bits[s] = *reinterpret_cast<const Quad<T>*>(own + at + s * Layout::kStepBytes + Layout::kDz);
      }
      if constexpr (Layout::kSharers == 2) __syncwarp();  // the other one has read its dy
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        float x[kQuad];
        float dy[kQuad];
        float dz[kQuad];
        unpack_quad<T>(x_bits[s], x);
        unpack_quad<T>(dy_bits[s], dy);
#pragma unroll
        for (int i = 0; i < kQuad; ++i) {
          const float centred = x[i] - channels.mean[i];
          dz[i] = dz_of<Act>({.scale = channels.scale[i], .beta = channels.beta[i]}, centred, dy[i]);
          sums[2 * i] += dz[i];
          sums[2 * i + 1] = fmaf(dz[i], centred, sums[2 * i + 1]);
        }
        *reinterpret_cast<float4*>(own_dz + at + s * Layout::kStepBytes) = {dz[0], dz[1], dz[2], dz[3]};
      }
    }
    left = plan.steps - plan.half;
    ptx::cp_async_wait<0>();
  }
}

// `start` is called by all threads before the first load. rows [n][c] gets an image's terms of dbeta and dgamma, unless it
// is null. S, for instance ChannelSums, is made of Sums and knows how
//     copy(to, from, valid)                             a thread begins to load 16 bytes
//     fetch_channels(p, t, plan, place)                 a thread loads what it can of what the channels need
//     load_channels(p, t, plan, place, fetched)         all threads leave what the channels need; a barrier follows
//     load_means(plan, place, mean)                     a thread has the means of its channels
//     correct<kCluster>(p, plan, place, rows, offset, slope)   all threads make of the parts what theirs take off dx
template <class T, class Act, bool kCluster, class S, class Start>
__device__ __forceinline__ void gradient(const Problem& p, const Backward::Tensors& t, const Plan& plan,
                                         typename S::Row* rows, const Start& start) {
  using Layout = SlabLayout<T>;
  LADDER_DYN_SMEM(raw);
  const S smem(raw + Layout::bytes(plan), plan);
  const Place place(p, plan);
  const int lane = place.lane;
  const int column = place.column;
  const int first = place.first;
  const int end = place.end;
  announce_start<kCluster>(smem);

  start();

  // What the channels need is first in the queues in front of memory: behind x and dy it would come last.
  const typename S::Fetched fetched = S::fetch_channels(p, t, plan, place);
  float beta[kQuad] = {};
  if (t.beta) load_quad(t.beta + place.chunk * plan.chunk + column * kQuad, beta);

  // Everything is on its way at once, in two groups. A pixel beyond the block's has the x of its last one and a dy of
  // zero, so that it adds nothing.
  unsigned char* const slab = raw + place.warp * plan.steps * Layout::kStepBytes;  // of the warp
  {
    const int sharer = lane % Layout::kSharers;
    const int at = place.image_at + (column - sharer) * kQuad;
    unsigned char* to = slab + sharer * Layout::kStepBytes + lane / Layout::kSharers * 16;
    int pixel = first + sharer * plan.rows;
    int step = sharer;
#pragma unroll 1
    for (int group = 0; group < 2; ++group) {
      const int until = group == 0 ? plan.half : plan.steps;
#pragma unroll 4
      for (; step < until; step += Layout::kSharers) {
        const int from = at + min(pixel, end - 1) * p.c;
        smem.copy(to, static_cast<const T*>(t.x) + from, true);
        smem.copy(to + Layout::kDz, static_cast<const T*>(t.dy) + from, pixel < end);
        pixel += Layout::kSharers * plan.rows;
        to += Layout::kSharers * Layout::kStepBytes;
      }
      ptx::cp_async_commit();
    }
  }
  ptx::grid_dependency_launch();

  smem.load_channels(p, t, plan, place, fetched);
  __syncthreads();
  float mean[kQuad];
  float scale[kQuad];
  smem.load_means(plan, place, mean);
  load_quad(smem.scale + column * kQuad, scale);

  unsigned char* const own = slab + lane * Layout::kQuadBytes;  // the thread's x, and behind it its dy
  unsigned char* const own_dz = slab + Layout::dz_at(lane);

  float sums[2 * kQuad] = {};
  make_dz<T, Act>(plan, own, own_dz, {mean, scale, beta}, sums);

  sum_rows<S::kFolds>(plan, smem, place, sums);
  __syncthreads();

  float offset[kQuad];
  float slope[kQuad];
  smem.template correct<kCluster>(p, plan, place, rows, offset, slope);
  int to = place.image_at + first * p.c + column * kQuad;
  int at = 0;
  const auto write = [&](int s) {
    float x[kQuad];
    float dz[kQuad];
    float dx[kQuad];
    unpack_quad<T>(*reinterpret_cast<const Quad<T>*>(own + at + s * Layout::kStepBytes), x);
    load_quad(reinterpret_cast<const float*>(own_dz + at + s * Layout::kStepBytes), dz);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      dx[i] = dx_of({.scale = scale[i]}, {.offset = offset[i], .slope = slope[i]}, x[i] - mean[i], dz[i]);
    }
    *reinterpret_cast<Quad<T>*>(static_cast<T*>(t.dx) + to + s * plan.rows * p.c) = pack_quad<T>(dx);
  };
  int pixel = first;
#pragma unroll 1
  for (; pixel + plan.rows < end; pixel += 2 * plan.rows) {
    write(0);
    write(1);
    to += 2 * plan.rows * p.c;
    at += 2 * Layout::kStepBytes;
  }
  if (pixel < end) write(0);
}

template <class T, class S>
int smem_bytes(const Plan& plan) {
  return SlabLayout<T>::bytes(plan) + S::bytes(plan);
}

// What a version's plans cost, fitted to a sweep of all of them for the shapes of `perf` on an H200.
struct Costs {
  double line = 0;        // what the rest of a line costs, of what it would if it were needed
  double step_ns = 0;     // of a thread
  double cluster_ns = 0;  // more for a cluster than for one of half its blocks
  double seen = 0;        // the share of the two that other blocks do not hide in later waves
  bool in_step = false;   // whether the first wave takes as long as the SM that has most of it
};

template <class T, class S>
Turns turns_of(const Problem& p, const Plan& plan) {
  if (double(plan.each) * plan.chunk * (sizeof(T) + 4) > most_smem_bytes()) return {};  // far too many for an int
  return ladder::turns_of(p.n * (p.c / plan.chunk), plan.cluster(), plan.threads(), smem_bytes<T, S>(plan),
                          S::kThreadsPerSm);
}

// What memory takes for the elements of an SM's blocks, each read twice and written once, in rows of a chunk. `line`: what
// the rest of a row's line costs, of what it would if it were needed.
template <class T>
double traffic_ns(const Plan& plan, double blocks, double line) {
  constexpr double kBytesPerNs = 32;  // that an SM gets of memory when all ask for some
  constexpr double kLineBytes = 128;  // that memory and caches move at best
  const double elements = blocks * plan.steps * plan.threads() * kQuad;
  const double lines = 1 + line * std::max(0.0, kLineBytes / (plan.chunk * sizeof(T)) - 1);
  return 3 * elements * sizeof(T) * lines / kBytesPerNs;
}

// A plan's time, roughly and without what every plan takes, to compare plans; infinity: it does not fit.
template <class T, class S>
double plan_ns(const Problem& p, const Plan& plan, const Costs& costs) {
  const Turns turns = turns_of<T, S>(p, plan);
  if (turns.most_blocks == 0) return std::numeric_limits<double>::infinity();
  double blocks = turns.blocks;
  if (costs.in_step) blocks = std::max(blocks, std::min<double>(turns.most_blocks, std::ceil(blocks)));
  const double traffic = traffic_ns<T>(plan, blocks, costs.line);

  // The rest of a block's time nothing hides in the first wave.
  const double rest = plan.steps * costs.step_ns + plan.log_cluster * costs.cluster_ns;
  return traffic + rest * (1 + (turns.waves - 1) * (turns.most_blocks > 1 ? costs.seen : 1.0));
}

// As few steps as `warps` allow, of as few rows as those allow.
inline void plan_threads(int warps, Plan& plan) {
  const int most_rows = std::min(warps * 32 / plan.quads, plan.each);
  plan.steps = ceil_div(plan.each, most_rows * kStepsAtOnce) * kStepsAtOnce;
  plan.rows = ceil_div(plan.each, plan.steps);
  plan.warps = ceil_div(plan.quads * plan.rows, 32);
  plan.half = ceil_div(plan.steps / kStepsAtOnce, 2) * kStepsAtOnce;
  plan.senders = plan.quads < 32 ? plan.warps : plan.rows;
  plan.parts = plan.senders;
}

// Of all plans the one of the lowest cost(plan), in whatever unit.
template <class T, class S, class Cost>
Plan plan_of(const Problem& p, const Cost& cost) {
  Plan best;
  if (!whole_vectors(p)) return best;
  const int unit = slab_unit<T>(p);
  double lowest = std::numeric_limits<double>::infinity();
  for (int log_cluster = 0; 1 << log_cluster <= S::most_cluster(); ++log_cluster) {
    const int each = ceil_div(p.pixels(), 1 << log_cluster);
    if (ceil_div(p.pixels(), each) != 1 << log_cluster) continue;  // some block would have no pixels
    for (int chunk = unit; chunk <= p.c; chunk += unit) {
      if (p.c % chunk != 0) continue;
      Plan plan{.chunk = chunk,
                .width = p.channels_per_group(),
                .groups = chunk / p.channels_per_group(),
                .by_width = (1u << 20) / p.channels_per_group() + 1,
                .log_cluster = log_cluster,
                .each = each,
                .quads = chunk / kQuad};
      for (int warps = kMaxThreads / 32; warps * 32 >= std::max(32, plan.quads); --warps) {
        plan_threads(warps, plan);
        for (int folds = 0; folds <= (S::kFolds && plan.senders > 1 && !shares_out(plan.quads) ? 1 : 0); ++folds) {
          plan.parts = ceil_div(plan.senders, 1 + folds);
          const double ns = cost(plan);
          if (ns < lowest) best = plan, lowest = ns;
        }
      }
    }
  }
  best.by_quads = best.quads > 0 ? 65536 / best.quads + 1 : 0;
  best.inverse_m = 1.0f / static_cast<float>(p.group_size());
  return best;
}

template <class T, class S>
LaunchConfig config_of(const Problem& p, const Plan& plan) {
  return {.grid = {static_cast<unsigned>(p.c / plan.chunk * plan.cluster()), static_cast<unsigned>(p.n)},
          .block = static_cast<unsigned>(plan.threads()),
          .dynamic_smem = static_cast<std::size_t>(smem_bytes<T, S>(plan)),
          .cluster = static_cast<unsigned>(plan.cluster())};
}

template <class S>
const char* supports(const Problem& p) {
  constexpr int kMaxImages = 65535;  // rows of a grid
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  if (p.n > kMaxImages) return "more images than a grid has rows";
  const char* reason = nullptr;
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    if (plan_of<T, S>(p, [&](const Plan& plan) { return plan_ns<T, S>(p, plan, {}); }).chunk == 0) {
      reason = "x and dz of an image's group do not fit in the shared memory of a cluster";
    }
  });
  return reason;
}

template <class S>
std::size_t workspace_bytes(const Problem& p) {
  return sizeof(typename S::Row) * p.n * p.c;
}

}  // namespace ladder::groupnorm::dz_kept
