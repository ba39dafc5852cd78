// A block's tile on mma.sync: how its warps share it, multiplies a step, and stores its accumulators to shared memory.
#pragma once

#include <algorithm>

#include "dev/common/mma_operand.h"

namespace ladder {

// kBlockM x kBlockN sums by kWarpsM x kWarpsN warps; kSlices such sets of warps share each step's terms.
template <int kBlockM_, int kBlockN_, int kWarpsM_, int kWarpsN_, int kSlices_, int kStages_, int kBlocksPerSm_>
struct MmaTile {
  static constexpr int kBlockM = kBlockM_, kBlockN = kBlockN_, kStages = kStages_, kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kWarpsM = kWarpsM_, kWarpsN = kWarpsN_, kSlices = kSlices_;
  static constexpr int kThreads = kWarpsM * kWarpsN * kSlices * 32;
  static constexpr int kWarpM = kBlockM / kWarpsM, kWarpN = kBlockN / kWarpsN;
  static constexpr int kPitch = kBlockN + 8;  // 8 floats: the 16 float2 of a half-warp meet no bank twice
  static constexpr int kSlice = kBlockM * kPitch;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0, "a warp loads 16 x 16 elements with one ldmatrix");
  static_assert(kMmasPerStep % kSlices == 0, "slices share a step evenly");

  // Shared memory of a launch of `steps` steps: the stages it uses; at the end the accumulators take their place.
  static std::size_t smem_bytes(int stage_bytes, int steps) {
    return std::max<std::size_t>(std::size_t{1} * std::min(kStages, steps) * stage_bytes,
                                 std::size_t{kSlices} * kSlice * sizeof(float));
  }

  static __device__ __forceinline__ int slice() { return threadIdx.x / 32 / (kWarpsM * kWarpsN); }
  static __device__ __forceinline__ int warp_m() { return threadIdx.x / 32 % kWarpsM * kWarpM; }
  static __device__ __forceinline__ int warp_n() { return threadIdx.x / 32 / kWarpsM % kWarpsN * kWarpN; }
};

// sum += A B over a step. Where `sums_a`, adds A's sums over its terms to a_sum: A times ones, eight equal columns.
template <class T, class Tile, class A, class B>
__device__ __forceinline__ void multiply_step(float (&sum)[Tile::kWarpM / 16][Tile::kWarpN / 8][4],
                                              const unsigned char* as, const unsigned char* bs, bool sums_a,
                                              float (&a_sum)[Tile::kWarpM / 16][4]) {
#pragma unroll
  for (int part = 0; part < kMmasPerStep / Tile::kSlices; ++part) {
    const int kk = part * Tile::kSlices + (Tile::kSlices > 1 ? Tile::slice() : 0);
    std::uint32_t a[Tile::kWarpM / 16][4];
    std::uint32_t b[Tile::kWarpN / 16][4];
#pragma unroll
    for (int i = 0; i < Tile::kWarpM / 16; ++i) A::load_a(a[i], as, Tile::warp_m() + 16 * i, kk);
#pragma unroll
    for (int j = 0; j < Tile::kWarpN / 16; ++j) B::load_b(b[j], bs, Tile::warp_n() + 16 * j, kk);
#pragma unroll
    for (int i = 0; i < Tile::kWarpM / 16; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kWarpN / 8; ++j)
        multiply<T>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
    if (sums_a) {
      constexpr std::uint32_t kOne = std::is_same_v<T, float>    ? 0x3f800000u
                                     : std::is_same_v<T, __half> ? 0x3c003c00u
                                                                 : 0x3f803f80u;
#pragma unroll
      for (int i = 0; i < Tile::kWarpM / 16; ++i) multiply<T>(a_sum[i], a[i], kOne, kOne);
    }
  }
}

template <class T, class Tile, class A, class B>
__device__ __forceinline__ void multiply_step(float (&sum)[Tile::kWarpM / 16][Tile::kWarpN / 8][4],
                                              const unsigned char* as, const unsigned char* bs) {
  float none[Tile::kWarpM / 16][4] = {};
  multiply_step<T, Tile, A, B>(sum, as, bs, false, none);
}

// Stores accumulators to shared memory, a tile for each slice.
template <class Tile>
__device__ __forceinline__ void put_sums(const float (&sum)[Tile::kWarpM / 16][Tile::kWarpN / 8][4], float* tiles) {
  const int lane = threadIdx.x % 32;
  float* const tile = tiles + Tile::slice() * Tile::kSlice;
#pragma unroll
  for (int i = 0; i < Tile::kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kWarpN / 8; ++j) {
      float* smem_acc =
          tile + (Tile::warp_m() + 16 * i + lane / 4) * Tile::kPitch + Tile::warp_n() + 8 * j + lane % 4 * 2;
      *reinterpret_cast<float2*>(smem_acc) = {sum[i][j][0], sum[i][j][1]};
      *reinterpret_cast<float2*>(smem_acc + 8 * Tile::kPitch) = {sum[i][j][2], sum[i][j][3]};
    }
  }
}

}  // namespace ladder
