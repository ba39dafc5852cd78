// fp32 products on the bf16 tensor cores: each factor is the sum of three bf16 parts, and six of the nine products of parts
// are added.
//
// Parts are cut off, not rounded: 24 significant bits are exactly 8 + 8 + 8, at any exponent, the largest included. The three
// products that are left out, those of middle with least parts and of least parts, are below 2^-21 of the product, on
// average 2^-24. Tensor cores cut off their sums too, always towards zero: so the five small products have sums of their own,
// whose errors weigh 2^-8, and the sums of the leading parts' products are 23 steps long. An infinite factor
// makes a NaN, and parts below 2^-133 are lost.
#pragma once

#include "dev/conv_stem/resident_filters.h"

namespace ladder::conv_stem {

inline constexpr int kParts = 3;
// Half of 96 channels: their three parts fill half of shared memory.
inline constexpr int kPartsN = 48;
inline constexpr int kPartBytes = kFilterBytes<kPartsN>;

// The parts of two neighbouring terms, leading ones first, packed two to a word.
__device__ __forceinline__ void split_pair(float first, float second, std::uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const unsigned low = __float_as_uint(first);
    const unsigned high = __float_as_uint(second);
    parts[i] = __byte_perm(low, high, 0x7632);  // the upper halves
    first -= __uint_as_float(low & 0xffff0000u);
    second -= __uint_as_float(high & 0xffff0000u);
  }
}

// Stores the parts of a block's filters, part after part. By all kThreads threads.
template <int kThreads>
__device__ __forceinline__ void arrange_filter_parts(const Problem& p, const float* w, int channel0,
                                                     unsigned char* filters) {
  arrange_filters<kPartsN, kThreads>(p, w, channel0, [&](int byte_offset, float first, float second) {
    std::uint32_t parts[kParts];
    split_pair(first, second, parts);
#pragma unroll
    for (int i = 0; i < kParts; ++i)
      *reinterpret_cast<std::uint32_t*>(filters + i * kPartBytes + byte_offset) = parts[i];
  });
}

// A warpgroup's sums of a convolution row: `leading` of the leading parts' products, `small` of the others. The parts of a
// step's pixels are cut while the step before is multiplied.
__device__ __forceinline__ void multiply_parts(const LaneWindow<float>& window, std::uint64_t filters,
                                               float (&leading)[kPartsN / 2], float (&small)[kPartsN / 2]) {
  std::uint32_t a[2][kParts][4];
  const auto load = [&](int step) {
    uint4 pixels[2];
    window.load(step, pixels);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float terms[kQuad];
      unpack_quad<float>(pixels[i], terms);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t parts[kParts];
        split_pair(terms[2 * half], terms[2 * half + 1], parts);
#pragma unroll
        for (int part = 0; part < kParts; ++part) a[step % 2][part][2 * half + i] = parts[part];
      }
    }
  };
  load(0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    std::uint64_t b[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) b[i] = step_filters<kPartsN>(ptx::wgmma_ahead(filters, i * kPartBytes), step);
    const auto multiply = [&](float(&sum)[kPartsN / 2], int part_a, int part_b, bool accumulate) {
      ptx::wgmma_m64_a_registers<__nv_bfloat16, kPartsN>(sum, a[step % 2][part_a], b[part_b], accumulate);
    };
    ptx::wgmma_fence();
    multiply(leading, 0, 0, step > 0);
    multiply(small, 0, 2, step > 0);
    multiply(small, 2, 0, true);
    multiply(small, 1, 1, true);
    multiply(small, 0, 1, true);
    multiply(small, 1, 0, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the step before is done: its fragments' registers are free
    ptx::warpgroup_fence_operand(a[(step + 1) % 2]);
    if (step + 1 < kSteps) load(step + 1);
  }
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(leading);
  ptx::warpgroup_fence_operand(small);
}

}  // namespace ladder::conv_stem
