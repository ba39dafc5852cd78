// The way of a warp's wgmma sums to the output: by way of rows of shared memory that are the warp's own, so that it writes
// whole rows of 16 bytes a lane and waits for no other warp. The residual comes the same way, in the other direction, ahead of
// time.
#pragma once

#include <cstdint>

#include "dev/common/vectors.h"
#include "dev/gemm/epilogue.h"
#include "dev/ptx/cp_async.h"

namespace ladder::gemm {

// 16 rows x kBlockN columns of T, 16 bits each. A lane has what wgmma leaves it: columns 8j + 2 (lane % 4) and the next of
// rows lane / 4 and lane / 4 + 8.
template <class T, int kBlockN>
struct WarpStore {
  static_assert(sizeof(T) == 2 && kBlockN % 16 == 0, "16-byte runs of a row divide over a warp");
  static constexpr int kVec = kVector<T>;
  static constexpr int kPitch = kBlockN * 2 + 16;  // bytes; a fragment's eight rows meet no bank twice
  static constexpr int kBytes = 16 * kPitch;
  static constexpr int kRunsPerRow = kBlockN / kVec;
  static constexpr int kRunsPerLane = 16 * kRunsPerRow / 32;

  // Asks for the tile of `residual` [rows, cols] that starts at (row0, col0); the copies are the caller's to commit.
  static __device__ __forceinline__ void fetch(unsigned char* staging, const T* residual, int row0, int col0, int rows,
                                               int cols) {
    if (cols % kVec != 0) return;  // store() reads it element by element
#pragma unroll
    for (int i = 0; i < kRunsPerLane; ++i) {
      const int run = threadIdx.x % 32 + i * 32;
      const int row = row0 + run / kRunsPerRow;
      const int col = col0 + run % kRunsPerRow * kVec;
      const bool inside = row < rows && col < cols;
      ptx::cp_async<16>(staging + run / kRunsPerRow * kPitch + run % kRunsPerRow * 16,
                        residual + (inside ? static_cast<long long>(row) * cols + col : 0), inside);
    }
  }

  // What becomes of `sum` goes to `out` [rows, cols]. If the epilogue has a residual, fetch()'s copies have arrived, for all
  // lanes.
  static __device__ __forceinline__ void store(unsigned char* staging, const float (&sum)[kBlockN / 2], int row0,
                                               int col0, int rows, int cols, const Epilogue<T>& epilogue, T* out) {
    const int lane = threadIdx.x % 32;
    const bool by_rows = cols % kVec == 0;
#pragma unroll
    for (int j = 0; j < kBlockN / 8; ++j) {
      const int col = col0 + 8 * j + lane % 4 * 2;
      float bias[2] = {};
      if (epilogue.bias && col < cols) bias[0] = epilogue.bias[col];
      if (epilogue.bias && col + 1 < cols) bias[1] = epilogue.bias[col + 1];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float z[2] = {sum[4 * j + 2 * half] + bias[0], sum[4 * j + 2 * half + 1] + bias[1]};
        const int row = lane / 4 + 8 * half;
        if (by_rows) {
          auto* const at = reinterpret_cast<unsigned*>(staging + row * kPitch + (8 * j + lane % 4 * 2) * 2);
          if (epilogue.residual) {
            const unsigned before[1] = {*at};
            float added[2];
            unpack<T, 1>(before, added);
            z[0] += added[0], z[1] += added[1];
          }
          if (epilogue.silu) z[0] = silu(z[0]), z[1] = silu(z[1]);
          unsigned rounded[1];
          pack<T, 1>(z, rounded);
          *at = rounded[0];
        } else {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (row0 + row >= rows || col + e >= cols) continue;
            const long long index = static_cast<long long>(row0 + row) * cols + col + e;
            if (epilogue.residual) z[e] += to_float(epilogue.residual[index]);
            out[index] = from_float<T>(epilogue.silu ? silu(z[e]) : z[e]);
          }
        }
      }
    }
    if (!by_rows) return;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kRunsPerLane; ++i) {
      const int run = lane + i * 32;
      const int row = row0 + run / kRunsPerRow;
      const int col = col0 + run % kRunsPerRow * kVec;
      if (row >= rows || col >= cols) continue;
      *reinterpret_cast<uint4*>(out + static_cast<long long>(row) * cols + col) =
          *reinterpret_cast<const uint4*>(staging + run / kRunsPerRow * kPitch + run % kRunsPerRow * 16);
    }
    __syncwarp();  // all have read: the rows may be filled again
  }
};

}  // namespace ladder::gemm
