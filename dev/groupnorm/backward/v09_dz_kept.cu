// Idea:   dz is computed once and kept, as fp32, in shared memory: in dy's place and, for 16-bit types, as much again.
// Parent: v06 (v07 and v08 are retired: README).
// Why:    v08 computes the derivative twice: 31 issue slots an element in its loops, about 9 more outside of them, four
//         instructions of the special function unit, 32 clocks of a quarter of an SM. Here it is 23, 6 and 16. A thread
//         has four channels instead of eight, so 80 registers are enough, and slabs are small: two or three blocks an
//         SM at 64x64, one of which loads while another computes. The host divides, shuffles add up, and blocks send
//         their sums by st.async. Limiter: shared memory, 6 bytes an element (8 for fp32).
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in eight blocks' shared memory, at most 65535 images,
//         clusters (sm_90); a workspace of two floats a channel of every image.

#include "dev/groupnorm/dz/dz_slab.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/st_async.h"

namespace ladder::groupnorm {
namespace {

using namespace resident_dz;

// Shared memory after the slab.
struct ChannelSums {
  float* mean;             // [chunk]
  float* rstd;             // [chunk]
  float* scale;            // [chunk], rstd * gamma
  float2* partial;         // [partial_rows][chunk], sums of dz and dz * (x - mean)
  float2* exchange;        // [cluster][chunk], the sums of all blocks
  ptx::Mbarrier* arrived;  // counts the bytes that the cluster sends
  // Aliases of the first two partial rows: the image's sums times rstd * gamma, and the correction of each channel's group.
  float2* weighted;         // [chunk]
  Correction* corrections;  // [chunk]

  static __host__ __device__ int room(const DzPlan& plan) { return plan.partial_rows < 2 ? 2 : plan.partial_rows; }
  static int bytes(const DzPlan& plan) {
    return plan.chunk * (12 + 8 * room(plan) + (plan.log_cluster > 0 ? 8 * plan.cluster() : 0)) +
           static_cast<int>(sizeof(ptx::Mbarrier));
  }
  __device__ __forceinline__ ChannelSums(unsigned char* smem, const DzPlan& plan) {
    mean = reinterpret_cast<float*>(smem);
    rstd = mean + plan.chunk;
    scale = reinterpret_cast<float*>(smem + 8 * plan.chunk);
    partial = reinterpret_cast<float2*>(scale + plan.chunk);
    exchange = partial + room(plan) * plan.chunk;
    arrived = reinterpret_cast<ptx::Mbarrier*>(exchange + plan.cluster() * plan.chunk);
    weighted = partial;
    corrections = reinterpret_cast<Correction*>(partial + plan.chunk);
  }
};

// Loads mean, rstd and rstd * gamma of the chunk's channels. Called by all threads; a barrier must follow.
template <class P = float>
__device__ __forceinline__ void load_channels(const Problem& p, const Backward::Tensors& t, const DzPlan& plan,
                                              const DzOffset& tile, const ChannelSums& smem) {
#pragma unroll 1
  for (int i = threadIdx.x; i < plan.chunk; i += plan.threads()) {
    const int group = tile.image * p.g + tile.chunk * plan.groups + i / plan.channels_per_group;
    smem.rstd[i] = t.rstd[group];
    smem.mean[i] = t.mean[group];
    smem.scale[i] = smem.rstd[i] * gamma_of<P>(t, tile.chunk * plan.chunk + i);
  }
}

// Sends the block's sums of every channel to all blocks of the cluster.
__device__ __forceinline__ void send_channels(const DzPlan& plan, const DzOffset& tile, const ChannelSums& smem) {
#pragma unroll 1
  for (int i = threadIdx.x; i < plan.chunk << plan.log_cluster; i += plan.threads()) {
    const int channel = i >> plan.log_cluster;
    const float2 sum = sum_column(smem.partial, plan.partial_rows, plan.chunk, channel);
    const int to = i & (plan.cluster() - 1);
    ptx::st_async(ptx::mapa(smem.exchange + tile.cta_rank * plan.chunk + channel, to), sum,
                  ptx::mapa(smem.arrived, to));
  }
}

// Computes the groups' corrections of dx from the image's channel sums, `sums` [count][chunk]. If `rows` is not null,
// the first block of the cluster stores the channels' totals there, for dgamma and dbeta.
__device__ __forceinline__ void correct_groups(const Problem& p, const DzPlan& plan, const DzOffset& tile,
                                               const ChannelSums& smem, const float2* sums, int count, float2* rows) {
#pragma unroll 1
  for (int i = threadIdx.x; i < plan.chunk; i += plan.threads()) {
    const float2 sum = sum_column(sums, count, plan.chunk, i);
    if (rows && tile.cta_rank == 0)
      rows[tile.image * p.c + tile.chunk * plan.chunk + i] = {sum.x, sum.y * smem.rstd[i]};
    smem.weighted[i] = {smem.scale[i] * sum.x, smem.scale[i] * sum.y};
  }
  __syncthreads();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * plan.channels_per_group; i < plan.chunk;
       i += plan.threads() * plan.channels_per_group) {
    float2 sum{0, 0};
#pragma unroll 2
    for (int c = i; c < i + plan.channels_per_group; ++c) sum.x += smem.weighted[c].x, sum.y += smem.weighted[c].y;
    const Correction correction{.offset = -plan.inverse_m * sum.x,
                                .slope = -plan.inverse_m * smem.rstd[i] * smem.rstd[i] * sum.y};
#pragma unroll 2
    for (int c = i; c < i + plan.channels_per_group; ++c) smem.corrections[c] = correction;
  }
  __syncthreads();
}

constexpr Needs kNeeds{.sums_bytes = ChannelSums::bytes};
// A quarter more or less of each number gives plans as good.
constexpr Costs kCosts{.line = 0.25, .step_ns = 70, .cluster_ns = 1000, .exposed = 0.5, .rounds_up_blocks = true};

template <class T, class Act, class P, bool kCluster>
__global__ void __launch_bounds__(kMaxThreads, kThreadsPerSm / kMaxThreads)
    groupnorm_backward_v09_kernel(Problem p, Backward::Tensors t, DzPlan plan, float2* rows) {
  using Layout = SlabLayout<T>;
  LADDER_DYN_SMEM(raw);
  const ChannelSums smem(raw + Layout::bytes(plan), plan);
  const DzOffset tile(p, plan);
  if constexpr (kCluster) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(smem.arrived, 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();  // this block has started
  }

  ptx::grid_dependency_wait();
  // beta is asked for first: after x and dy in the queues to memory it would come last.
  float beta[kQuad] = {};
  if (t.beta) load_parameters(typed<P>(t.beta) + tile.chunk * plan.chunk + tile.column * kQuad, beta);

  // x and dy: everything is on its way at once, in two groups. A pixel past the block's last one has the x of that and a dy of
  // zero, so that it adds nothing.
  unsigned char* const slab = raw + tile.warp_idx * plan.steps * Layout::kStepBytes;  // of the warp
  {
    const int sharer = tile.lane_idx % Layout::kSharers;
    const int column_offset = tile.image_offset + (tile.column - sharer) * kQuad;
    unsigned char* to = slab + sharer * Layout::kStepBytes + tile.lane_idx / Layout::kSharers * 16;
    int pixel = tile.first_pixel + sharer * plan.pixel_rows;
    int step = sharer;
#pragma unroll 1
    for (int group = 0; group < 2; ++group) {
      const int until = group == 0 ? plan.first_steps : plan.steps;
#pragma unroll 4
      for (; step < until; step += Layout::kSharers) {
        const int from = column_offset + min(pixel, tile.end_pixel - 1) * p.c;
        ptx::cp_async<16>(to, static_cast<const T*>(t.x) + from, true);
        ptx::cp_async<16>(to + Layout::kDz, static_cast<const T*>(t.dy) + from, pixel < tile.end_pixel);
        pixel += Layout::kSharers * plan.pixel_rows;
        to += Layout::kSharers * Layout::kStepBytes;
      }
      ptx::cp_async_commit();
    }
  }
  ptx::grid_dependency_launch();

  load_channels<P>(p, t, plan, tile, smem);
  __syncthreads();
  float mean[kQuad];
  float scale[kQuad];
  load_quad(smem.mean + tile.column * kQuad, mean);
  load_quad(smem.scale + tile.column * kQuad, scale);

  // dz takes dy's place, and a thread adds up two sums of each of its channels; then the rows of the block add up theirs.
  unsigned char* const local_x = slab + tile.lane_idx * Layout::kQuadBytes;  // the thread's x
  unsigned char* const local_dz = slab + Layout::dz_offset(tile.lane_idx);
  float sums[2 * kQuad] = {};
  make_dz<T, Act>(plan, local_x, local_dz, mean, scale, beta, sums);
  sum_rows<false>({plan.quads, plan.chunk, plan.pixel_rows, plan.partial_sums, plan.partial_rows}, smem.partial,
                  tile.row, tile.column, sums);
  __syncthreads();

  // Every block gets the sums of all, and makes what its groups take off dx.
  if constexpr (kCluster) {
    ptx::cluster_wait();  // all blocks have started
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(smem.arrived, (plan.chunk << plan.log_cluster) * sizeof(float2));
    }
    send_channels(plan, tile, smem);
    __syncthreads();  // nobody reads the partial sums any more
    ptx::mbarrier_wait_cluster(smem.arrived, 0);
    correct_groups(p, plan, tile, smem, smem.exchange, plan.cluster(), rows);
  } else {
    correct_groups(p, plan, tile, smem, smem.partial, plan.partial_rows, rows);
  }
  float offset[kQuad];
  float slope[kQuad];
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    const Correction correction = smem.corrections[tile.column * kQuad + i];
    offset[i] = correction.offset, slope[i] = correction.slope;
  }

  // dx, two pixels at a time.
  int to = tile.image_offset + tile.first_pixel * p.c + tile.column * kQuad;
  int step_offset = 0;
  const auto write = [&](int s) {
    float x[kQuad];
    float dz[kQuad];
    float dx[kQuad];
    unpack_quad<T>(*reinterpret_cast<const Quad<T>*>(local_x + step_offset + s * Layout::kStepBytes), x);
    load_quad(reinterpret_cast<const float*>(local_dz + step_offset + s * Layout::kStepBytes), dz);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      dx[i] = dx_of({.scale = scale[i]}, {.offset = offset[i], .slope = slope[i]}, x[i] - mean[i], dz[i]);
    }
    *reinterpret_cast<Quad<T>*>(static_cast<T*>(t.dx) + to + s * plan.pixel_rows * p.c) = pack_quad<T>(dx);
  };
  int pixel = tile.first_pixel;
#pragma unroll 1
  for (; pixel + plan.pixel_rows < tile.end_pixel; pixel += 2 * plan.pixel_rows) {
    write(0);
    write(1);
    to += 2 * plan.pixel_rows * p.c;
    step_offset += 2 * Layout::kStepBytes;
  }
  if (pixel < tile.end_pixel) write(0);
}

const char* supports(const Problem& p) { return resident_dz::supports(p, kNeeds); }

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  const DzPlan plan = plan_of(p, kNeeds, kCosts);
  const LaunchConfig config{
      .grid = {static_cast<unsigned>(p.c / plan.chunk * plan.cluster()), static_cast<unsigned>(p.n)},
      .block = static_cast<unsigned>(plan.threads()),
      .dynamic_smem = static_cast<std::size_t>(smem_bytes(p, plan, kNeeds)),
      .cluster = static_cast<unsigned>(plan.cluster()),
      .overlaps_previous = true};
  dispatch_all_types(p, [&](auto element, auto act, auto parameter) {
    using T = decltype(element);
    using Act = decltype(act);
    using P = decltype(parameter);
    const auto kernel = plan.cluster() == 1 ? groupnorm_backward_v09_kernel<T, Act, P, false>  //
                                            : groupnorm_backward_v09_kernel<T, Act, P, true>;
    ladder::launch(kernel, config, stream, p, t, plan, rows);
  });
  launch_parameters(p, rows, p.n, t, stream, true);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::supports,
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes,
                                             .min_arch = 90,
                                             .needs = "whole vectors; slabs that fit in eight blocks' shared memory"})
