// A slab of x and dz in shared memory (v09 and later): its layout, a thread's position in it, and the pass that
// computes dz.
#pragma once

#include "dev/common/quad_rows.h"
#include "dev/groupnorm/dz/dz_plan.h"
#include "dev/groupnorm/gradient.h"
#include "dev/ptx/cp_async.h"

namespace ladder::groupnorm::dz_kept {

// Slab of a block, [warp][step]: x [lane][4] T, then dz [lane][4] fp32. dy is copied to the first half of dz, or to all
// of it in fp32. Two threads share a vector of 16-bit elements: the even one copies it at even steps, the odd one at
// odd steps.
template <class T>
struct SlabLayout {
  static constexpr int kSharers = sizeof(T) == 2 ? 2 : 1;
  static constexpr int kQuadBytes = kQuad * sizeof(T);
  static constexpr int kDz = 32 * kQuadBytes;
  static constexpr int kStepBytes = kDz + 32 * kQuad * 4;

  static __host__ __device__ int bytes(const Plan& plan) { return plan.steps * plan.warps * kStepBytes; }

  // Byte offset of a lane's dz in a step. 16-bit types: even lanes fill the first 256 bytes, odd lanes the second 256,
  // swizzled so that any eight successive lanes access all banks.
  static __device__ __forceinline__ int dz_at(int lane) {
    return kDz + (kSharers == 1 ? lane * 16 : lane % 2 * 256 + ((lane / 2 * 16) ^ (lane % 2 * 64)));
  }
};

// Position of a block and its thread: the block is rank blockIdx.x % cluster of chunk blockIdx.x / cluster, of image
// blockIdx.y.
struct Place {
  int warp, lane;
  int row, column;  // a row is a pixel, a column a quad of channels
  int image, chunk, rank;
  int first, end;  // the thread's first pixel and the block's last + 1; first == end: no pixels
  int image_at;    // offset in [n, h, w, c] of the chunk's first element of the image

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

// Overwrites a thread's dy with dz, as the slab's two cp.async groups arrive, and adds up two sums of each channel: of
// dz, and of dz * (x - mean). Calls also(x - mean) for each quad, including those past the thread's last pixel.
template <class T, class Act, class F>
__device__ __forceinline__ void make_dz(const Plan& plan, const unsigned char* own, unsigned char* own_dz,
                                        const float (&mean)[kQuad], const float (&scale)[kQuad],
                                        const float (&beta)[kQuad], float (&sums)[2 * kQuad], const F& also) {
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
        also(centred);
        *reinterpret_cast<float4*>(own_dz + at + s * Layout::kStepBytes) = {dz[0], dz[1], dz[2], dz[3]};
      }
    }
    left = plan.steps - plan.half;
    ptx::cp_async_wait<0>();
  }
}
template <class T, class Act>
__device__ __forceinline__ void make_dz(const Plan& plan, const unsigned char* own, unsigned char* own_dz,
                                        const float (&mean)[kQuad], const float (&scale)[kQuad],
                                        const float (&beta)[kQuad], float (&sums)[2 * kQuad]) {
  make_dz<T, Act>(plan, own, own_dz, mean, scale, beta, sums, [](const float(&)[kQuad]) {});
}

}  // namespace ladder::groupnorm::dz_kept
