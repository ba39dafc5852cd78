// Idea:   no im2col. A block keeps all weights in shared memory as FP16 and walks down rows of output; each row of x is
//         converted once into a strip of shared memory, out of which lanes load wgmma's A fragments, pixels overlapping.
// Parent: v06.
// Why:    v06 gathers every element of x seven times, an address and a conversion each, and writes it to shared memory as
//         often. Here a row of x is read once, four rows a row of output, in 16-byte loads that are in flight while the row
//         before multiplies; a fragment costs a fifth of the tensor cores' time. Three warpgroups an SM are at different
//         points of their rows, so one's stores hide under another's products. Limiter left: DRAM, two thirds of it y.
// Needs:  sm_90a; allow_tf32, and factors within FP16's range (up to 65504; TF32's is fp32's); 3 -> 96 channels, 11x11,
//         stride 4, padding 2; w a multiple of 4, at most 256.

#include <algorithm>

#include "dev/conv_stem/row_strips.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::conv_stem {
namespace {

constexpr int kGroups = 3;
constexpr int kThreads = kGroups * kGroupThreads;
constexpr int kWarps = kThreads / 32;
constexpr int kWarpPixels = 16;
constexpr int kStagePitch = kOutChannels + 8;  // floats: eight rows of a quarter's 8-byte stores lie in different banks
constexpr int kStageBytes = kWarpPixels * kStagePitch * sizeof(float);  // a warp's sums
constexpr int kRingsAt = StripWeights::kBytes;
constexpr int kStagesAt = kRingsAt + kGroups * StripRows::kBytes;
constexpr int kBarriersAt = kStagesAt + kWarps * kStageBytes;
constexpr int kSmemBytes = kBarriersAt + kGroups * sizeof(ptx::Mbarrier);
static_assert(kSmemBytes <= 227 * 1024, "what a block may have");

__global__ void __launch_bounds__(kThreads, 1)
    conv_stem_fprop_v07_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  LADDER_DYN_SMEM(smem);
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);  // so that it is known to be a warp's
  const int thread = threadIdx.x % kGroupThreads;
  const int lane = threadIdx.x % 32;
  unsigned char* const ring = smem + kRingsAt + group * StripRows::kBytes;
  float* const stage = reinterpret_cast<float*>(smem + kStagesAt + threadIdx.x / 32 * kStageBytes);
  auto* const barrier = reinterpret_cast<ptx::Mbarrier*>(smem + kBarriersAt) + group;

  // The ring begins as zeros: nothing else writes the columns of padding.
  for (int i = thread; i < StripRows::kBytes / 8; i += kGroupThreads) reinterpret_cast<uint2*>(ring)[i] = {0, 0};
  if (thread == 0) ptx::mbarrier_init(barrier, kGroupThreads / 32);
  ptx::grid_dependency_wait();
  StripWeights::fill<kWarps>(smem, w);
  const int first_channel = lane % 8 * 4;  // where this lane stores: of each 32 channels, these four
  float4 own_bias[kOutChannels / 32];
#pragma unroll
  for (int c = 0; c < kOutChannels / 32; ++c) {
    const float* const from = bias + c * 32 + first_channel;
    own_bias[c] = bias ? float4{from[0], from[1], from[2], from[3]} : float4{0, 0, 0, 0};
  }
  ptx::wgmma_fence_stores();
  __syncthreads();
  const std::uint64_t weights = ptx::wgmma_descriptor(smem, 8 * StripWeights::kRowBytes);
  unsigned phase = 0;
  const auto group_barrier = [&] {
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_wait(barrier, phase);
    phase ^= 1;
  };

  // The warpgroup's rows of output, counted over all images.
  const long long rows = static_cast<long long>(p.n) * p.out_h();
  const int share = blockIdx.x * kGroups + group;
  const int shares = gridDim.x * kGroups;
  const int begin = static_cast<int>(rows * share / shares);
  const int end = static_cast<int>(rows * (share + 1) / shares);
  const StripRows strip(p, thread);
  float4 next[StripRows::kPieces];
  for (int i = begin; i < end; ++i) {
    const int row = i % p.out_h();
    const float* const image = x + i / p.out_h() * (p.h * p.w * kChannels);
    if (i == begin || row == 0) {
      // Three batches for a first row, all in flight together, once nobody reads the last image's rows.
      if (i != begin) group_barrier();
      float4 all[3][StripRows::kPieces];
#pragma unroll
      for (int b = 0; b < 3; ++b) strip.load(p, image, row - 2 + b, thread, all[b]);
#pragma unroll
      for (int b = 0; b < 3; ++b) strip.store(ring, row + 2 + b, all[b]);
    } else {
      strip.store(ring, row + 4, next);
    }
    group_barrier();
    if (i + 1 < end && row + 1 < p.out_h()) strip.load(p, image, row + 1, thread, next);

    float sum[kOutChannels / 2];
    multiply_strip(sum, ring, row + 4, weights, thread);

    // A warp's 16 pixels are whole runs of y: by way of shared memory, each store is of four 128-byte lines.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < kOutChannels / 8; ++j) {
        float* const to = stage + (lane / 4 + half * 8) * kStagePitch + j * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(to) = {sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]};
      }
    }
    __syncwarp();
    const int first_pixel = threadIdx.x % kGroupThreads / 32 * kWarpPixels;
#pragma unroll
    for (int r = 0; r < kWarpPixels; r += 4) {
      const int pixel = first_pixel + r + lane / 8;
      const float* const from = stage + (r + lane / 8) * kStagePitch + first_channel;
      float* const to = y + (i * p.out_w() + pixel) * kOutChannels + first_channel;
      if (pixel >= p.out_w()) continue;
#pragma unroll
      for (int c = 0; c < kOutChannels / 32; ++c) {
        const float4 v = *reinterpret_cast<const float4*>(from + c * 32);
        *reinterpret_cast<float4*>(to + c * 32) = {v.x + own_bias[c].x, v.y + own_bias[c].y, v.z + own_bias[c].z,
                                                   v.w + own_bias[c].w};
      }
    }
    __syncwarp();  // the next row's sums come to the same place
  }
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const int blocks = std::min(ceil_div(p.n * p.out_h(), kGroups), backend::device().num_sms);
  ladder::launch(
      conv_stem_fprop_v07_kernel,
      {.grid = static_cast<unsigned>(blocks), .block = kThreads, .dynamic_smem = kSmemBytes, .overlaps_previous = true},
      stream, p, t.x, t.w, t.bias, t.y);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::Fprop, {.launch = ladder::conv_stem::launch,
                                          .dtypes = {ladder::Dtype::f32},
                                          .supports = ladder::conv_stem::row_strips_only,
                                          .min_arch = 90,
                                          .arch_specific = true,
                                          .needs = "allow_tf32; 3 -> 96 channels, 11x11, stride 4"})
