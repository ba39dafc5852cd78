// A slab of x and dz in shared memory (v09 and later): its layout, a thread's position in it, and the pass that
// computes dz.
#pragma once

#include "dev/common/quad_rows.h"
#include "dev/groupnorm/dz/dz_plan.h"
#include "dev/groupnorm/gradient.h"
#include "dev/ptx/cp_async.h"

namespace ladder::groupnorm::resident_dz {

// Slab of a block, [warp][step]: x [lane][4] T, then dz [lane][4] fp32. dy is copied to the first half of dz, or to all
// of it in fp32. Two threads share a vector of 16-bit elements: the even one copies it at even steps, the odd one at
// odd steps.
template <class T>
struct SlabLayout {
  static constexpr int kSharers = sizeof(T) == 2 ? 2 : 1;
  static constexpr int kQuadBytes = kQuad * sizeof(T);
  static constexpr int kDz = 32 * kQuadBytes;
  static constexpr int kStepBytes = kDz + 32 * kQuad * 4;

  static __host__ __device__ int bytes(const DzPlan& plan) { return plan.steps * plan.warps * kStepBytes; }

  // Byte offset of a lane's dz in a step. 16-bit types: even lanes fill the first 256 bytes, odd lanes the second 256,
  // swizzled so that any eight successive lanes access all banks.
  static __device__ __forceinline__ int dz_offset(int lane_idx) {
    return kDz + (kSharers == 1 ? lane_idx * 16 : lane_idx % 2 * 256 + ((lane_idx / 2 * 16) ^ (lane_idx % 2 * 64)));
  }
};

// Position of a block and its thread: the block is rank blockIdx.x % cluster of chunk blockIdx.x / cluster, of image
// blockIdx.y.
struct DzOffset {
  int warp_idx, lane_idx;
  int row, column;  // a row is a pixel, a column a quad of channels
  int image, chunk, cta_rank;
  int first_pixel, end_pixel;  // the thread's first and the block's last + 1; equal: no pixels
  int image_offset;            // offset in [n, h, w, c] of the chunk's first element of the image

  __device__ __forceinline__ DzOffset(const Problem& p, const DzPlan& plan) {
    const unsigned thread = threadIdx.x;
    warp_idx = thread / 32;
    lane_idx = thread % 32;
    row = thread * plan.reciprocal_quads >> 16;
    column = static_cast<int>(thread) - row * plan.quads;
    image = blockIdx.y;
    chunk = blockIdx.x >> plan.log_cluster;
    cta_rank = blockIdx.x - (chunk << plan.log_cluster);
    const int begin = cta_rank * plan.pixels_per_block;
    end_pixel = min(begin + plan.pixels_per_block, p.h * p.w);
    first_pixel = row < plan.pixel_rows ? begin + row : end_pixel;
    image_offset = image * p.h * p.w * p.c + chunk * plan.chunk;
  }
};

// Overwrites a thread's dy with dz, as the slab's two cp.async groups arrive, and adds up two sums of each channel: of
// dz, and of dz * (x - mean). Calls visit(x - mean) for each quad, including those past the thread's last pixel.
template <class T, class Act, class F>
__device__ __forceinline__ void make_dz(const DzPlan& plan, const unsigned char* local_x, unsigned char* local_dz,
                                        const float (&mean)[kQuad], const float (&scale)[kQuad],
                                        const float (&beta)[kQuad], float (&sums)[2 * kQuad], const F& visit) {
  using Layout = SlabLayout<T>;
  int step_offset = 0;
  int steps_left = plan.first_steps;
  ptx::cp_async_wait<1>();
#pragma unroll 1
  for (int group = 0; group < 2; ++group) {
    __syncwarp();
#pragma unroll 1
    for (; steps_left > 0; steps_left -= kStepsAtOnce, step_offset += kStepsAtOnce * Layout::kStepBytes) {
      Quad<T> x_bits[kStepsAtOnce];
      Quad<T> dy_bits[kStepsAtOnce];
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        x_bits[s] = *reinterpret_cast<const Quad<T>*>(local_x + step_offset + s * Layout::kStepBytes);
        dy_bits[s] = *reinterpret_cast<const Quad<T>*>(local_x + step_offset + s * Layout::kStepBytes + Layout::kDz);
      }
      if constexpr (Layout::kSharers == 2) __syncwarp();  // the thread that shares the vector has read its dy
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        float x[kQuad];
        float dy[kQuad];
        float dz[kQuad];
        float centred[kQuad];
        unpack_quad<T>(x_bits[s], x);
        unpack_quad<T>(dy_bits[s], dy);
#pragma unroll
        for (int i = 0; i < kQuad; ++i) {
          centred[i] = x[i] - mean[i];
          dz[i] = dz_of<Act>({.scale = scale[i], .beta = beta[i]}, centred[i], dy[i]);
          sums[2 * i] += dz[i];
          sums[2 * i + 1] = fmaf(dz[i], centred[i], sums[2 * i + 1]);
        }
        visit(centred);
        *reinterpret_cast<float4*>(local_dz + step_offset + s * Layout::kStepBytes) = {dz[0], dz[1], dz[2], dz[3]};
      }
    }
    steps_left = plan.steps - plan.first_steps;
    ptx::cp_async_wait<0>();
  }
}
template <class T, class Act>
__device__ __forceinline__ void make_dz(const DzPlan& plan, const unsigned char* local_x, unsigned char* local_dz,
                                        const float (&mean)[kQuad], const float (&scale)[kQuad],
                                        const float (&beta)[kQuad], float (&sums)[2 * kQuad]) {
  make_dz<T, Act>(plan, local_x, local_dz, mean, scale, beta, sums, [](const float(&)[kQuad]) {});
}

}  // namespace ladder::groupnorm::resident_dz
