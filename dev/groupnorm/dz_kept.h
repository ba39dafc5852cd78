// dz kept as fp32 in shared memory between the pass that makes the sums and the pass that uses them: what v09 and later
// share.
#pragma once

#include "dev/groupnorm/gradient_slab.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/ptx/cluster.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::groupnorm::dz_kept {

inline constexpr int kMostThreads = 256;
inline constexpr int kThreadsPerSm = 768;  // that have 80 registers each
inline constexpr int kQuad = 4;            // channels of a thread
inline constexpr int kStepsAtOnce = 2;     // pixels that a thread has in hand

// A block has `each` pixels of a chunk of channels, a thread every so many pixels of four channels. What a kernel would
// have to divide for is here.
struct Plan {
  int chunk = 0;  // channels, whole groups; 0: there is no plan
  int width = 0;  // channels of a group
  int log_cluster = 0;
  int each = 0;
  int quads = 0;  // of a pixel
  int rows = 0;   // pixels that a block's threads take at a time
  int warps = 0;
  int steps = 0;          // times that they do; a multiple of kStepsAtOnce
  int half = 0;           // likewise: those that are copied first
  int parts = 0;          // sums that a block has of a channel: one a warp, or one a row where those are wider
  unsigned by_quads = 0;  // 65536 / quads, rounded up
  float inverse_m = 0;

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
};

// Behind it, what a block knows of its channels.
struct Sums {
  float* mean;             // [chunk]
  float* rstd;             // [chunk]
  float* scale;            // [chunk], rstd * gamma
  float2* parts;           // [parts][chunk], of dz and dz * (x - mean)
  float2* exchange;        // [cluster][chunk], of all blocks
  ptx::Mbarrier* arrived;  // says that they are there
  // In place of the first two parts: the image's sums times rstd * gamma, and what the groups make of them.
  float2* weighted;         // [chunk]
  Correction* corrections;  // [chunk]

  static __host__ __device__ int room(const Plan& plan) { return plan.parts < 2 ? 2 : plan.parts; }
  static int bytes(const Plan& plan) {
    return plan.chunk * (12 + 8 * room(plan) + (plan.log_cluster > 0 ? 8 * plan.cluster() : 0)) +
           static_cast<int>(sizeof(ptx::Mbarrier));
  }
  __device__ __forceinline__ Sums(unsigned char* smem, const Plan& plan) {
    mean = reinterpret_cast<float*>(smem);
    rstd = mean + plan.chunk;
    scale = rstd + plan.chunk;
    parts = reinterpret_cast<float2*>(scale + plan.chunk);
    exchange = parts + room(plan) * plan.chunk;
    arrived = reinterpret_cast<ptx::Mbarrier*>(exchange + plan.cluster() * plan.chunk);
    weighted = parts;
    corrections = reinterpret_cast<Correction*>(parts + plan.chunk);
  }
};

__device__ __forceinline__ void load_quad(const float* from, float (&values)[kQuad]) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  values[0] = v.x, values[1] = v.y, values[2] = v.z, values[3] = v.w;
}

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

// Adds up the sums of a warp's rows into its part, or leaves those of each row as parts.
__device__ __forceinline__ void sum_rows(const Plan& plan, const Sums& smem, int warp, int lane, int row, int column,
                                         float (&values)[2 * kQuad]) {
  if (plan.quads < 32 && (plan.quads & (plan.quads - 1)) == 0) {
    auto* part = reinterpret_cast<float*>(smem.parts + warp * plan.chunk + column * kQuad);
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
  const int index = plan.quads < 32 ? warp : row;
  if (plan.quads < 32 ? lane < plan.quads : row < plan.rows) {
    float2* const part = smem.parts + index * plan.chunk + column * kQuad;
    *reinterpret_cast<float4*>(part) = {values[0], values[1], values[2], values[3]};
    *reinterpret_cast<float4*>(part + 2) = {values[4], values[5], values[6], values[7]};
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

// A block is rank blockIdx.x % cluster of chunk blockIdx.x / cluster, of image blockIdx.y. `start` is called by all threads
// before the first load. all_sums [n][c] gets an image's terms of dbeta and dgamma, unless it is null.
template <class T, class Act, bool kCluster, class Start>
__device__ __forceinline__ void gradient(const Problem& p, const Backward::Tensors& t, const Plan& plan,
                                         float2* all_sums, const Start& start) {
  using Layout = SlabLayout<T>;
  LADDER_DYN_SMEM(raw);
  const Sums smem(raw + Layout::bytes(plan), plan);
  const unsigned thread = threadIdx.x;
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int row = thread * plan.by_quads >> 16;
  const int column = static_cast<int>(thread) - row * plan.quads;
  const int image = blockIdx.y;
  const int chunk = blockIdx.x >> plan.log_cluster;
  const int rank = blockIdx.x - (chunk << plan.log_cluster);
  const int begin = rank * plan.each;
  const int end = min(begin + plan.each, p.h * p.w);
  const int first = row < plan.rows ? begin + row : end;  // the thread's first pixel; `end`: it has none
  const int image_at = image * p.h * p.w * p.c + chunk * plan.chunk;
  if constexpr (kCluster) {
    if (thread == 0) {
      ptx::mbarrier_init(smem.arrived, 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();  // it has started
  }

  start();

  // Everything is on its way at once, in two groups. A pixel beyond the block's has the x of its last one and a dy of
  // zero, so that it adds nothing.
  unsigned char* const slab = raw + warp * plan.steps * Layout::kStepBytes;  // of the warp
  {
    const int sharer = lane % Layout::kSharers;
    const int at = image_at + (column - sharer) * kQuad;
    unsigned char* to = slab + sharer * Layout::kStepBytes + lane / Layout::kSharers * 16;
    int pixel = first + sharer * plan.rows;
    int step = sharer;
#pragma unroll 1
    for (int group = 0; group < 2; ++group) {
      const int until = group == 0 ? plan.half : plan.steps;
#pragma unroll 4
      for (; step < until; step += Layout::kSharers) {
        const int from = at + min(pixel, end - 1) * p.c;
        ptx::cp_async<16>(to, static_cast<const T*>(t.x) + from, true);
        ptx::cp_async<16>(to + Layout::kDz, static_cast<const T*>(t.dy) + from, pixel < end);
        pixel += Layout::kSharers * plan.rows;
        to += Layout::kSharers * Layout::kStepBytes;
      }
      ptx::cp_async_commit();
    }
  }
  ptx::grid_dependency_launch();

  // Meanwhile a few threads find what the channels need.
  float beta[kQuad] = {};
  if (t.beta) load_quad(t.beta + chunk * plan.chunk + column * kQuad, beta);
#pragma unroll 1
  for (int i = thread; i < plan.chunk; i += plan.threads()) {
    const int group = image * p.g + (chunk * plan.chunk + i) / plan.width;
    const float rstd = t.rstd[group];
    smem.mean[i] = t.mean[group];
    smem.rstd[i] = rstd;
    smem.scale[i] = rstd * gamma_of(t, chunk * plan.chunk + i);
  }
  __syncthreads();
  float mean[kQuad];
  float scale[kQuad];
  load_quad(smem.mean + column * kQuad, mean);
  load_quad(smem.scale + column * kQuad, scale);

  // The thread's x and dy, and where its dz goes: 16 bytes of 32 that two threads have, in the order that gives each
  // eight threads all banks.
  unsigned char* const own = slab + lane * Layout::kQuadBytes;
  unsigned char* const own_dz =
      slab + Layout::kDz + (Layout::kSharers == 1 ? lane * 16 : lane % 2 * 256 + ((lane / 2 * 16) ^ (lane % 2 * 64)));

  float sums[2 * kQuad] = {};  // of a channel: of dz, and of dz * (x - mean)
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
          const float centred = x[i] - mean[i];
          dz[i] = dz_of<Act>({.scale = scale[i], .beta = beta[i]}, centred, dy[i]);
          sums[2 * i] += dz[i];
          sums[2 * i + 1] = fmaf(dz[i], centred, sums[2 * i + 1]);
        }
        *reinterpret_cast<float4*>(own_dz + at + s * Layout::kStepBytes) = {dz[0], dz[1], dz[2], dz[3]};
      }
    }
    left = plan.steps - plan.half;
    ptx::cp_async_wait<0>();
  }
  sum_rows(plan, smem, warp, lane, row, column, sums);
  __syncthreads();

  // Every block sends its sums to all of the cluster.
  if constexpr (kCluster) {
    ptx::cluster_wait();  // all blocks have started
    if (thread == 0) ptx::mbarrier_arrive_expect_tx(smem.arrived, (plan.chunk << plan.log_cluster) * sizeof(float2));
#pragma unroll 1
    for (int i = thread; i < plan.chunk << plan.log_cluster; i += plan.threads()) {
      const int channel = i >> plan.log_cluster;
      const float2 sum = sum_column(smem.parts, plan.parts, plan.chunk, channel);
      const int to = i & (plan.cluster() - 1);
      ptx::st_async(ptx::mapa(smem.exchange + rank * plan.chunk + channel, to), sum, ptx::mapa(smem.arrived, to));
    }
    __syncthreads();  // nobody reads the parts any more
    ptx::mbarrier_wait_cluster(smem.arrived, 0);
  }
#pragma unroll 1
  for (int i = thread; i < plan.chunk; i += plan.threads()) {
    const float2 sum = kCluster ? sum_column(smem.exchange, plan.cluster(), plan.chunk, i)
                                : sum_column(smem.parts, plan.parts, plan.chunk, i);
    if (all_sums && rank == 0) all_sums[image * p.c + chunk * plan.chunk + i] = {sum.x, sum.y * smem.rstd[i]};
    smem.weighted[i] = {smem.scale[i] * sum.x, smem.scale[i] * sum.y};
  }
  __syncthreads();
#pragma unroll 1
  for (int i = thread * plan.width; i < plan.chunk; i += plan.threads() * plan.width) {
    float2 sum{0, 0};
#pragma unroll 2
    for (int c = i; c < i + plan.width; ++c) sum.x += smem.weighted[c].x, sum.y += smem.weighted[c].y;
    const float rstd = smem.rstd[i];
    const Correction correction{.offset = -plan.inverse_m * sum.x, .slope = -plan.inverse_m * rstd * rstd * sum.y};
#pragma unroll 2
    for (int c = i; c < i + plan.width; ++c) smem.corrections[c] = correction;
  }
  __syncthreads();

  float offset[kQuad];
  float slope[kQuad];
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    const Correction correction = smem.corrections[column * kQuad + i];
    offset[i] = correction.offset, slope[i] = correction.slope;
  }
  int to = image_at + first * p.c + column * kQuad;
  at = 0;
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

template <class T>
int smem_bytes(const Plan& plan) {
  return SlabLayout<T>::bytes(plan) + Sums::bytes(plan);
}

// What a version's plans cost, fitted to a sweep of all of them for the shapes of `perf` on an H200.
struct Costs {
  double line = 0;        // what the rest of a line costs, of what it would if it were needed
  double step_ns = 0;     // of a thread
  double cluster_ns = 0;  // more for a cluster than for one of half its blocks
  double seen = 0;        // the share of the two that other blocks do not hide in later waves
  bool in_step = false;   // whether the first wave takes as long as the SM that has most of it
};

// A plan's time, roughly and without what every plan takes, to compare plans; infinity: it does not fit.
template <class T>
double plan_ns(const Problem& p, const Plan& plan, const Costs& costs) {
  constexpr double kBytesPerNs = 32;  // that an SM gets of memory when all ask for some
  constexpr double kLineBytes = 128;  // that memory and caches move at best
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const int most_bytes = most_smem_bytes();
  if (double(plan.each) * plan.chunk * (sizeof(T) + 4) > most_bytes) return kInfinity;  // far too many for an int
  const int smem = smem_bytes<T>(plan);
  if (smem > most_bytes) return kInfinity;

  // Clusters of four or eight leave SMs idle, of 132 twelve. Half of what the last wave lacks counts as there.
  const int num_sms = backend::device().num_sms;
  const int used_sms = plan.cluster() > 2 ? num_sms - num_sms / 11 : num_sms;
  const int most_blocks = std::min(kThreadsPerSm / plan.threads(), blocks_per_sm(smem));  // of an SM
  const int resident = std::max(1, used_sms * most_blocks / plan.cluster());
  const int clusters = p.n * (p.c / plan.chunk);
  const double waves = std::max(1.0, (double(clusters) / resident + ceil_div(clusters, resident)) / 2);

  double blocks = double(clusters) * plan.cluster() / num_sms;  // of an SM
  if (costs.in_step) {
    blocks = std::max<double>(blocks, ceil_div(std::min(resident, clusters) * plan.cluster(), num_sms));
  }
  const double elements = blocks * plan.steps * plan.threads() * kQuad;
  const double lines = 1 + costs.line * std::max(0.0, kLineBytes / (plan.chunk * sizeof(T)) - 1);
  const double traffic = 3 * elements * sizeof(T) * lines / kBytesPerNs;

  // The rest of a block's time nothing hides in the first wave.
  const double rest = plan.steps * costs.step_ns + plan.log_cluster * costs.cluster_ns;
  return traffic + rest * (1 + (waves - 1) * (most_blocks > 1 ? costs.seen : 1.0));
}

// As few steps as `warps` allow, of as few rows as those allow.
inline void plan_threads(int warps, Plan& plan) {
  const int most_rows = std::min(warps * 32 / plan.quads, plan.each);
  plan.steps = ceil_div(plan.each, most_rows * kStepsAtOnce) * kStepsAtOnce;
  plan.rows = ceil_div(plan.each, plan.steps);
  plan.warps = ceil_div(plan.quads * plan.rows, 32);
  plan.half = ceil_div(plan.steps / kStepsAtOnce, 2) * kStepsAtOnce;
  plan.parts = plan.quads < 32 ? plan.warps : plan.rows;
}

template <class T>
Plan plan_of(const Problem& p, const Costs& costs) {
  Plan best;
  if (!whole_vectors(p)) return best;
  const int unit = slab_unit<T>(p);
  double lowest = std::numeric_limits<double>::infinity();
  for (int log_cluster = 0; 1 << log_cluster <= kMostClusterBlocks; ++log_cluster) {
    const int each = ceil_div(p.pixels(), 1 << log_cluster);
    if (ceil_div(p.pixels(), each) != 1 << log_cluster) continue;  // some block would have no pixels
    for (int chunk = unit; chunk <= p.c; chunk += unit) {
      if (p.c % chunk != 0) continue;
      Plan plan{.chunk = chunk,
                .width = p.channels_per_group(),
                .log_cluster = log_cluster,
                .each = each,
                .quads = chunk / kQuad};
      for (int warps = kMostThreads / 32; warps * 32 >= std::max(32, plan.quads); --warps) {
        plan_threads(warps, plan);
        const double ns = plan_ns<T>(p, plan, costs);
        if (ns < lowest) best = plan, lowest = ns;
      }
    }
  }
  best.by_quads = best.quads > 0 ? 65536 / best.quads + 1 : 0;
  best.inverse_m = 1.0f / static_cast<float>(p.group_size());
  return best;
}

template <class T>
LaunchConfig config_of(const Problem& p, const Plan& plan) {
  return {.grid = {static_cast<unsigned>(p.c / plan.chunk * plan.cluster()), static_cast<unsigned>(p.n)},
          .block = static_cast<unsigned>(plan.threads()),
          .dynamic_smem = static_cast<std::size_t>(smem_bytes<T>(plan)),
          .cluster = static_cast<unsigned>(plan.cluster())};
}

inline const char* supports(const Problem& p) {
  constexpr int kMostImages = 65535;  // rows of a grid
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  if (p.n > kMostImages) return "more images than a grid has rows";
  const char* reason = nullptr;
  with_storage_type(p.dtype, [&](auto element) {
    if (plan_of<decltype(element)>(p, {}).chunk == 0) {
      reason = "x and dz of an image's group do not fit in the shared memory of eight blocks";
    }
  });
  return reason;
}

inline std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

}  // namespace ladder::groupnorm::dz_kept
