// mma.sync: a warp multiplies small matrices, D = A B + D with fp32 sums (PTX ISA 9.7.14.5, sm_80 and later).
//
// With g = lane / 4 and t = lane % 4, 16-bit elements packed two to a register, lower index in the lower half:
//   m16n8k16  A: a0 (g, 2t..) a1 (g+8, 2t..) a2 (g, 2t+8..) a3 (g+8, 2t+8..)    B: b0 (2t.., g) b1 (2t+8.., g)
//   m16n8k8   A: a0 (g, t) a1 (g+8, t) a2 (g, t+4) a3 (g+8, t+4)                B: b0 (t, g) b1 (t+4, g)      tf32
//   both      D: d0 (g, 2t) d1 (g, 2t+1) d2 (g+8, 2t) d3 (g+8, 2t+1)
// All 32 lanes must take part.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "dev/ptx/where.h"

#if !defined(__CUDACC__)
#include <bit>

#include "core/dtype.h"
#include "core/simt/mma.h"
#endif

namespace ladder::ptx {

// T is __nv_bfloat16 or __half.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4],
                                             const std::uint32_t (&b)[2] LADDER_WHERE);

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const std::uint32_t (&a)[4],
                                                            const std::uint32_t (&b)[2] LADDER_WHERE_IN) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  simt::mma_m16n8k16<__nv_bfloat16>(d, a, b, where);
#endif
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4], const std::uint32_t (&a)[4],
                                                     const std::uint32_t (&b)[2] LADDER_WHERE_IN) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  simt::mma_m16n8k16<__half>(d, a, b, where);
#endif
}

// fp32 to the nearest tf32 (PTX ISA 9.7.9.22 cvt). Ties go to even from sm_90 on, where that is one instruction, and away
// from zero before.
__device__ __forceinline__ std::uint32_t to_tf32(float value) {
#if !defined(__CUDACC__)
  return std::bit_cast<std::uint32_t>(round_to(Dtype::tf32, value));
#else
  std::uint32_t bits;
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#else
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#endif
  return bits;
#endif
}

// a and b hold fp32 bit patterns; the hardware reads their upper 19 bits.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2] LADDER_WHERE) {
#if defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  simt::mma_m16n8k8_tf32(d, a, b, where);
#endif
}

}  // namespace ladder::ptx
