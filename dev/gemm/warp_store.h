// A warp stores its wgmma accumulators through rows of shared memory that no other warp touches: it writes whole rows, 16 bytes
// a lane, and waits for no other warp. The residual is loaded into the same rows ahead of time, and the bias into registers.
//
// NOTE: whether a problem has a residual or SiLU is tested once a tile. Tested for each sum, it made a tile's code some 4000
// instructions of branches and of loads that waited for one another: 60 ns for each sum of a lane on an H200.
#pragma once

#include <cstdint>

#include "dev/common/vectors.h"
#include "dev/gemm/epilogue.h"
#include "dev/ptx/cp_async.h"

namespace ladder::gemm {

// 16 rows x kBlockN columns of T, 16 bits each. As wgmma leaves them, a lane has columns 8j + 2 (lane % 4) and the next of
// rows lane / 4 and lane / 4 + 8.
template <class T, int kBlockN>
struct WarpStore {
  static_assert(sizeof(T) == 2 && kBlockN % 16 == 0, "16-byte runs of a row divide over a warp");
  static constexpr int kVec = kVector<T>;
  static constexpr int kPitch = kBlockN * 2 + 16;  // bytes; a fragment's eight rows meet no bank twice
  static constexpr int kBytes = 16 * kPitch;
  static constexpr int kRunsPerRow = kBlockN / kVec;
  static constexpr int kRunsPerLane = 16 * kRunsPerRow / 32;
  static constexpr int kPairs = kBlockN / 8;  // of a lane's columns

  // The bias [cols] of a lane's columns of the tile that starts at col0; zeros beyond, and where `bias` is null.
  template <class P>
  static __device__ __forceinline__ void fetch_bias(float2 (&pairs)[kPairs], const P* bias, int col0, int cols) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) pairs[j] = {0.0f, 0.0f};
    if (!bias) return;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int col = col0 + 8 * j + static_cast<int>(threadIdx.x) % 4 * 2;
      if (col < cols) pairs[j].x = to_float(bias[col]);
      if (col + 1 < cols) pairs[j].y = to_float(bias[col + 1]);
    }
  }

  // Starts copies of the tile of `residual` [rows, cols] that starts at (row0, col0); the caller commits them.
  static __device__ __forceinline__ void fetch(unsigned char* staging, const T* residual, int row0, int col0, int rows,
                                               int cols) {
    if (cols % kVec != 0) {
      for (int i = threadIdx.x % 32; i < 16 * kBlockN; i += 32) {
        const int row = row0 + i / kBlockN;
        const int col = col0 + i % kBlockN;
        if (row < rows && col < cols)
          row_ptr(staging, i / kBlockN)[i % kBlockN] = *element_at(residual, row, col, cols);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kRunsPerLane; ++i) {
      const int run = threadIdx.x % 32 + i * 32;
      const int row = row0 + run / kRunsPerRow;
      const int col = col0 + run % kRunsPerRow * kVec;
      const bool inside = row < rows && col < cols;
      ptx::cp_async<16>(row_ptr(staging, run / kRunsPerRow) + run % kRunsPerRow * kVec,
                        element_at(residual, inside ? row : 0, inside ? col : 0, cols), inside);
    }
  }

  // Applies the epilogue to `sum` and stores it to `out` [rows, cols], a T* or a ConcatOperand<T>. `bias` is from fetch_bias(),
  // or null. If the epilogue has a residual, fetch()'s copies have arrived, for all lanes.
  template <class P, class Out>
  static __device__ __forceinline__ void store(unsigned char* staging, const float (&sum)[kBlockN / 2],
                                               const float2* bias, int row0, int col0, int rows, int cols,
                                               const Epilogue<T, P>& epilogue, const Out& out) {
    if (epilogue.residual) {
      epilogue.silu ? round<true, true>(staging, sum, bias) : round<true, false>(staging, sum, bias);
    } else {
      epilogue.silu ? round<false, true>(staging, sum, bias) : round<false, false>(staging, sum, bias);
    }
    __syncwarp();
    if (in_runs<kVec>(out, cols)) {
#pragma unroll
      for (int i = 0; i < kRunsPerLane; ++i) {
        const int run = threadIdx.x % 32 + i * 32;
        const int row = row0 + run / kRunsPerRow;
        const int col = col0 + run % kRunsPerRow * kVec;
        if (row >= rows || col >= cols) continue;
        *reinterpret_cast<uint4*>(element_at(out, row, col, cols)) =
            *reinterpret_cast<const uint4*>(row_ptr(staging, run / kRunsPerRow) + run % kRunsPerRow * kVec);
      }
    } else {
      for (int i = threadIdx.x % 32; i < 16 * kBlockN; i += 32) {
        const int row = row0 + i / kBlockN;
        const int col = col0 + i % kBlockN;
        if (row < rows && col < cols) *element_at(out, row, col, cols) = row_ptr(staging, i / kBlockN)[i % kBlockN];
      }
    }
    __syncwarp();  // all have read: the rows may be filled again
  }

 private:
  static __device__ __forceinline__ T* row_ptr(unsigned char* staging, int row) {
    return reinterpret_cast<T*>(staging + row * kPitch);
  }

  // Writes finished elements over the residual's.
  template <bool kResidual, bool kSilu>
  static __device__ __forceinline__ void round(unsigned char* staging, const float (&sum)[kBlockN / 2],
                                               const float2* bias) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float z[2] = {sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]};
        if (bias) z[0] += bias[j].x, z[1] += bias[j].y;
        auto* const to = reinterpret_cast<unsigned*>(row_ptr(staging, lane / 4 + 8 * half) + 8 * j + lane % 4 * 2);
        if constexpr (kResidual) {
          const unsigned before[1] = {*to};
          float added[2];
          unpack<T, 1>(before, added);
          z[0] += added[0], z[1] += added[1];
        }
        if constexpr (kSilu) z[0] = silu(z[0]), z[1] = silu(z[1]);
        unsigned rounded[1];
        pack<T, 1>(z, rounded);
        *to = rounded[0];
      }
    }
  }
};

}  // namespace ladder::gemm
