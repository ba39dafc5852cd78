// Idea:   one kernel: a block has whole images, and the blocks of a cluster all images of their channels.
// Parent: v09.
// Why:    small images are nothing but latencies. A group's sums never leave a block here, so dx waits for no cluster
//         barrier. A cluster adds up dgamma and dbeta while dx is being stored, without a second kernel or a workspace,
//         and the sums that its blocks send do not wait for their stores. Threads load into registers and find their
//         channels' constants themselves; a block has one barrier. Limiter: the latency of memory, then what a thread
//         does once. An image's chunk has to fit in a block: no 32x32.
// Needs:  c a multiple of 4, groups of at most 128 channels, an eighth of the images' groups in a block's registers,
//         clusters (sm_90).
// Spills: 12 bytes in fp32 with Mish and 8 quads, on sm_80 alone, where it does not run.

#include "dev/common/quads.h"
#include "dev/groupnorm/gradient_terms.h"
#include "dev/groupnorm/whole_images/image_plan.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/opaque.h"
#include "dev/ptx/st_async.h"

namespace ladder::groupnorm {
namespace {

using namespace whole_images;

// Blocks that an SM has room for, at 80 registers: with one on each, clusters of eight leave a tenth of the SMs idle.
[[maybe_unused]] constexpr int kBlocksPerSm = 2;

// Shared memory of a warp: private until the block's barrier. Arrays [2][...] hold the sums of dz first.
struct WarpShared {
  unsigned char* parked;  // [steps][32], quads of x, or nothing
  float* thread_sums;     // [2][32][kQuad], a thread's sums of dz and dz * (x - mean)
  float* scale;           // [chunk], rstd * gamma
  float* rstd;            // [chunk]
  float* sums;            // [2][chunk], the warp's sums of dz and dz * xhat
  float* weighted;        // [2][chunk], the same times scale
  float* corrections;     // [2][chunk], the warp's part of offset and slope

  __device__ __forceinline__ WarpShared(unsigned char* smem, const ImagePlan& plan, int warp_idx, int x_bytes) {
    parked = smem + warp_idx * plan.warp_bytes;
    thread_sums = reinterpret_cast<float*>(parked + x_bytes);
    scale = thread_sums + 2 * kWarpWords;
    rstd = scale + plan.chunk;
    sums = rstd + plan.chunk;
    weighted = sums + 2 * plan.chunk;
    corrections = weighted + 2 * plan.chunk;
  }
};

// Shared memory of a cluster's first block: the sums that every block sends, and the barrier that counts their bytes.
struct Exchange {
  ptx::Mbarrier* arrived;
  float* sums;  // [cluster][2][chunk]

  __device__ __forceinline__ explicit Exchange(unsigned char* smem)
      : arrived(reinterpret_cast<ptx::Mbarrier*>(smem)), sums(reinterpret_cast<float*>(smem + kSumsOffset)) {}
};

__device__ __forceinline__ void store_four(float* to, const float4& values) { *reinterpret_cast<float4*>(to) = values; }

// Returns the sum of every stride-th word of [from, end), with kAtOnce loads in flight.
template <int kAtOnce>
__device__ __forceinline__ float sum_every(const float* from, int stride, const float* end) {
  float sum = 0;
#pragma unroll 1
  while (from < end) {
    float values[kAtOnce];
#pragma unroll
    for (float& value : values) {
      value = from < end ? *from : 0.0f;
      from += stride;
    }
#pragma unroll
    for (const float value : values) sum += value;
  }
  return sum;
}

// Adds up the sums of a warp's threads; lane 0 has column `first_column`. A lane takes one channel of one kind of sum,
// and adds first over the warp's pixels, then over the channels of its group.
__device__ __forceinline__ void sum_warp(const ImagePlan& plan, const WarpShared& smem, int lane_idx,
                                         int first_column) {
#pragma unroll 1
  for (int i = lane_idx; i < 2 * plan.chunk; i += 32) {
    const int kind = i >= plan.chunk;
    const int channel = i - kind * plan.chunk;
    const int first = channel - first_column * kQuad;
    const float* const thread_sums = smem.thread_sums + kind * kWarpWords;
    float sum =
        sum_every<6>(thread_sums + (first < 0 ? first + plan.chunk : first), plan.chunk, thread_sums + kWarpWords);
    if (kind == 1) sum *= smem.rstd[channel];
    smem.sums[i] = sum;
    smem.weighted[i] = sum * smem.scale[channel];
  }
  __syncwarp();
#pragma unroll 1
  for (int i = lane_idx; i < 2 * plan.chunk; i += 32) {
    const int kind = i >= plan.chunk;
    const int channel = i - kind * plan.chunk;
    const float* const from =
        smem.weighted + kind * plan.chunk + (channel * plan.reciprocal_width >> 16) * plan.channels_per_group;
    float sum = -plan.inverse_m * sum_every<4>(from, 1, from + plan.channels_per_group);
    if (kind == 1) sum *= smem.rstd[channel];
    smem.corrections[i] = sum;
  }
}

// Adds up offset and slope over the `plan.warps` warps of an image; `from`: those of its first warp.
__device__ __forceinline__ void sum_corrections(const ImagePlan& plan, const float* from,
                                                Correction (&corrections)[kQuad]) {
#pragma unroll 2
  for (int warp_idx = 0; warp_idx < plan.warps; ++warp_idx) {
    float offsets[kQuad];
    float slopes[kQuad];
    load_quad(from, offsets);
    load_quad(from + plan.chunk, slopes);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      corrections[i].offset += offsets[i];
      corrections[i].slope += slopes[i];
    }
    from += plan.warp_bytes / 4;
  }
}

// Stores the i-th of a chunk's sums [2][chunk]: dbeta, then dgamma.
template <class P>
__device__ __forceinline__ void store_sum(const ImagePlan& plan, const Backward::Tensors& t, int first_channel, int i,
                                          float sum) {
  if (i < plan.chunk) {
    store_parameter<P>(t.dbeta, first_channel + i, sum);
  } else {
    store_parameter<P>(t.dgamma, first_channel + i - plan.chunk, sum);
  }
}

// Adds up the sums of the block's images by one warp. Sends them to the cluster's first block, or stores them if alone.
template <class P>
__device__ __forceinline__ void send_sums(const ImagePlan& plan, const Backward::Tensors& t,
                                          const WarpShared& first_warp, const Exchange& exchange, int lane_idx,
                                          int cta_rank, int first_channel) {
  const int stride = plan.warp_bytes / 4;
#pragma unroll 1
  for (int i = lane_idx; i < 2 * plan.chunk; i += 32) {
    const float sum = sum_every<4>(first_warp.sums + i, stride, first_warp.sums + plan.block_warps() * stride);
    if (plan.cluster == 1) {
      store_sum<P>(plan, t, first_channel, i, sum);
    } else {
      ptx::st_async(ptx::mapa(exchange.sums + cta_rank * 2 * plan.chunk + i, 0), sum, ptx::mapa(exchange.arrived, 0));
    }
  }
}

// Adds up the sums that all blocks sent, in the order of their ranks, by one warp of the first block.
template <class P>
__device__ __forceinline__ void finish_sums(const ImagePlan& plan, const Backward::Tensors& t, const Exchange& exchange,
                                            int lane_idx, int first_channel) {
  ptx::mbarrier_wait_cluster(exchange.arrived, 0);
#pragma unroll 1
  for (int i = lane_idx; i < 2 * plan.chunk; i += 32) {
    const float sum = sum_every<4>(exchange.sums + i, 2 * plan.chunk, exchange.sums + plan.cluster * 2 * plan.chunk);
    store_sum<P>(plan, t, first_channel, i, sum);
  }
}

// kFull: every thread has a pixel at each of its steps.
template <class T, class Act, class P, int kSteps, bool kFull>
__global__ void __launch_bounds__(kMaxThreads, kFull ? kBlocksPerSm : 1)
    groupnorm_backward_v10_kernel(Problem p, Backward::Tensors t, ImagePlan plan) {
  LADDER_DYN_SMEM(raw);
  const unsigned thread = threadIdx.x;  // of its image
  const int lane_idx = thread % 32;
  const int warp_idx = threadIdx.y * plan.warps + thread / 32;  // of the block
  constexpr bool kParked = parked_bytes(kSteps, sizeof(T)) > 0;
  const WarpShared smem(raw + exchange_bytes(plan), plan, warp_idx, parked_bytes(kSteps, sizeof(T)));
  const int row = thread * plan.reciprocal_quads >> 16;
  const int column = static_cast<int>(thread) - row * plan.quads;
  const int cta_rank = blockIdx.y;
  const int image_idx = cta_rank * plan.images_per_block + threadIdx.y;
  const bool idle = !kFull && (row >= plan.pixel_rows || image_idx >= p.n);
  const int image = kFull ? image_idx : min(image_idx, p.n - 1);
  const int pixels_left = idle ? 0 : p.h * p.w - row;  // pixels from the thread's first one on
  const auto has = [&](int step) { return kFull || step * plan.pixel_rows < pixels_left; };
  const bool collects = plan.cluster > 1 && cta_rank == 0;  // the block receives the sums of all blocks
  const bool announces = collects && threadIdx.x + threadIdx.y == 0;
  const int first_channel = blockIdx.x * plan.chunk;
  // NOTE: opaque, or else nvcc computes it anew before dx is written.
  const int offset = ptx::opaque((image * p.h * p.w + row) * p.c + first_channel + column * kQuad);

  // Start all loads at once: x and dy, then the constants of the thread's channels.
  ptx::grid_dependency_wait();
  auto* const parked = reinterpret_cast<Quad<T>*>(smem.parked) + lane_idx;
  Quad<T> x[kSteps];
  Quad<T> dy[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (has(step)) {
      const int from = offset + step * plan.pixel_rows * p.c;
      const T* const x_from = static_cast<const T*>(t.x) + from;
      if constexpr (kParked) {
        ptx::cp_async<sizeof(Quad<T>)>(parked + step * 32, x_from, true);
      } else {
        x[step] = *reinterpret_cast<const Quad<T>*>(x_from);
      }
      dy[step] = *reinterpret_cast<const Quad<T>*>(static_cast<const T*>(t.dy) + from);
    }
    if (kParked && (step + 1) % (kSteps / 2) == 0) ptx::cp_async_commit();  // half of them
  }
  if (p.affine) {
    if (announces) {
      ptx::mbarrier_init(Exchange(raw).arrived, 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();  // this block has started
  }

  Channel channels[kQuad];
  {
    float gamma[kQuad] = {1, 1, 1, 1};
    float beta[kQuad] = {};
    if (p.affine) {
      load_parameters(typed<P>(t.gamma) + first_channel + column * kQuad, gamma);
      load_parameters(typed<P>(t.beta) + first_channel + column * kQuad, beta);
    }
    const int first_group = image * p.g + blockIdx.x * (plan.chunk * plan.reciprocal_width >> 16);
    float rstd[kQuad];
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const int group = first_group + ((column * kQuad + i) * plan.reciprocal_width >> 16);
      channels[i].mean = t.mean[group];
      rstd[i] = t.rstd[group];
    }
    if (p.affine) {
      ptx::cluster_wait();  // all blocks have started
      if (announces) ptx::mbarrier_arrive_expect_tx(Exchange(raw).arrived, exchanged_bytes(plan));
    }
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      channels[i].scale = rstd[i] * gamma[i];
      channels[i].beta = beta[i];
    }
    if (lane_idx < plan.quads) {
      store_four(smem.scale + column * kQuad,
                 {channels[0].scale, channels[1].scale, channels[2].scale, channels[3].scale});
      store_four(smem.rstd + column * kQuad, {rstd[0], rstd[1], rstd[2], rstd[3]});
    }
  }

  // Compute dz and its sums, of a thread, then of its warp.
  ptx::grid_dependency_launch();
  const auto unpack_x = [&](int step, float(&values)[kQuad]) {
    unpack_quad<T>(kParked ? parked[step * 32] : x[step], values);
  };
  const int first_column = __shfl_sync(~0u, column, 0);
  float dz[kSteps][kQuad];
  {
    float2 sums[kQuad] = {};  // of dz, and of dz * (x - mean)
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (kParked && step == 0) ptx::cp_async_wait<1>();
      if (kParked && step == kSteps / 2) ptx::cp_async_wait<0>();
      if (!has(step)) break;
      float xs[kQuad];
      float dys[kQuad];
      unpack_x(step, xs);
      unpack_quad<T>(dy[step], dys);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) dz[step][i] = add_terms<Act>(channels[i], xs[i], dys[i], sums[i]);
    }
    store_four(smem.thread_sums + lane_idx * kQuad, {sums[0].x, sums[1].x, sums[2].x, sums[3].x});
    store_four(smem.thread_sums + kWarpWords + lane_idx * kQuad, {sums[0].y, sums[1].y, sums[2].y, sums[3].y});
  }
  __syncwarp();
  sum_warp(plan, smem, lane_idx, first_column);
  __syncthreads();

  // Send the sums for dgamma and dbeta first, so that they are in flight while dx is computed.
  if (p.affine && warp_idx == 0) send_sums<P>(plan, t, smem, Exchange(raw), lane_idx, cta_rank, first_channel);

  // Compute the corrections of the image's groups, then dx.
  Correction corrections[kQuad] = {};
  sum_corrections(plan, smem.corrections - thread / 32 * (plan.warp_bytes / 4) + column * kQuad, corrections);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (!has(step)) break;
    float xs[kQuad];
    float dx[kQuad];
    unpack_x(step, xs);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) dx[i] = dx_of(channels[i], corrections[i], xs[i] - channels[i].mean, dz[step][i]);
    *reinterpret_cast<Quad<T>*>(static_cast<T*>(t.dx) + (offset + step * plan.pixel_rows * p.c)) = pack_quad<T>(dx);
  }

  if (p.affine && collects && warp_idx == plan.block_warps() - 1) {
    finish_sums<P>(plan, t, Exchange(raw), lane_idx, first_channel);
  }
}

const char* supports(const Problem& p) {
  if (const char* const why = plain_dx_only(p)) return why;
  if (const char* const why = one_x_only(p)) return why;
  if (p.c % kQuad != 0) return "a pixel's channels are no multiple of 4";
  return plan_of(p).chunk == 0 ? "the images' groups do not fit in the registers of eight blocks" : nullptr;
}

// Kernels for 4 steps a thread and for more, for images that fill all steps (kFull) and for others.
template <class T, class Act, class P, int kSteps, bool kFull>
KernelPlan<Backward> kernel_plan(const Problem& p, const ImagePlan& plan, const char* name) {
  const auto bind = [p, plan](const Backward::Tensors& t, void*) {
    const auto cluster = static_cast<unsigned>(plan.cluster);
    return bind_launch(groupnorm_backward_v10_kernel<T, Act, P, kSteps, kFull>,
                       {.grid = {static_cast<unsigned>(p.c / plan.chunk), cluster},
                        .block = {static_cast<unsigned>(plan.warps * 32), static_cast<unsigned>(plan.images_per_block)},
                        .dynamic_smem = static_cast<std::size_t>(smem_bytes(plan)),
                        .cluster = p.affine ? dim3{1, cluster} : dim3{1},
                        .overlaps_previous = true},
                       p, t, plan);
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  std::vector<KernelPlan<Backward>> plans;
  dispatch_all_types(p, [&](auto element, auto act, auto parameter) {
    using T = decltype(element);
    using Act = decltype(act);
    using P = decltype(parameter);
    const ImagePlan plan = plan_of(p);
    const bool small = plan.steps == 4;
    if (plan.full(p)) {
      plans.push_back(small ? kernel_plan<T, Act, P, 4, true>(p, plan, "4 steps, whole")
                            : kernel_plan<T, Act, P, kMaxSteps, true>(p, plan, "many steps, whole"));
    }
    plans.push_back(small ? kernel_plan<T, Act, P, 4, false>(p, plan, "4 steps")
                          : kernel_plan<T, Act, P, kMaxSteps, false>(p, plan, "many steps"));
  });
  return plans;
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward,
               {.plans = ladder::groupnorm::plans,
                .plan_names = {"4 steps, whole", "many steps, whole", "4 steps", "many steps"},
                .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::groupnorm::supports,
                .min_arch = 90,
                .needs = "c a multiple of 4; images that fit in the registers of eight blocks"})
