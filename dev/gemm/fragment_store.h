// Store of a warp's wgmma accumulators as fp32, straight from registers: the four lanes of a row write 32 bytes
// together, a whole sector.
#pragma once

#include "dev/gemm/epilogue.h"

namespace ladder::gemm {

// wgmma's accumulator layout: a lane has columns 8j + 2 (lane % 4) and the next, of rows lane / 4 and lane / 4 + 8.
template <int kBlockN>
struct FragmentStore {
  // Store 16 rows, from row0 on. Residual and SiLU are tested once: tests at every sum would be most of the code.
  static __device__ __forceinline__ void store(const float (&sum)[kBlockN / 2], int row0, int col0, int rows, int cols,
                                               const Epilogue<float>& epilogue, float* out) {
    if (cols % 2 != 0) {
      one_by_one(sum, row0, col0, rows, cols, epilogue, out);
    } else if (epilogue.residual) {
      epilogue.silu ? pairs<true, true>(sum, row0, col0, rows, cols, epilogue, out)
                    : pairs<true, false>(sum, row0, col0, rows, cols, epilogue, out);
    } else {
      epilogue.silu ? pairs<false, true>(sum, row0, col0, rows, cols, epilogue, out)
                    : pairs<false, false>(sum, row0, col0, rows, cols, epilogue, out);
    }
  }

 private:
  template <bool kResidual, bool kSilu>
  static __device__ __forceinline__ void pairs(const float (&sum)[kBlockN / 2], int row0, int col0, int rows, int cols,
                                               const Epilogue<float>& epilogue, float* out) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kBlockN / 8; ++j) {
      const int col = col0 + 8 * j + lane % 4 * 2;
      if (col >= cols) continue;
      const float2 bias = epilogue.bias ? parameter_pair(epilogue.bias + col) : float2{0.0f, 0.0f};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row0 + lane / 4 + 8 * half;
        if (row >= rows) continue;
        float2 z = {sum[4 * j + 2 * half] + bias.x, sum[4 * j + 2 * half + 1] + bias.y};
        if constexpr (kResidual) {
          const float2 more = *reinterpret_cast<const float2*>(element_at(epilogue.residual, row, col, cols));
          z.x += more.x, z.y += more.y;
        }
        if constexpr (kSilu) z.x = silu(z.x), z.y = silu(z.y);
        *reinterpret_cast<float2*>(element_at(out, row, col, cols)) = z;
      }
    }
  }

  static __device__ __forceinline__ void one_by_one(const float (&sum)[kBlockN / 2], int row0, int col0, int rows,
                                                    int cols, const Epilogue<float>& epilogue, float* out) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kBlockN / 2; ++i) {
      const int row = row0 + lane / 4 + i / 2 % 2 * 8;
      const int col = col0 + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const long long index = static_cast<long long>(row) * cols + col;
      if (row < rows && col < cols) out[index] = epilogue(sum[i], col, index);
    }
  }
};

}  // namespace ladder::gemm
