// ldmatrix: a warp loads 8x8 matrices of 16-bit elements from shared memory in the layout mma.sync wants (PTX ISA
// 9.7.14.5.15, sm_75 and later); stmatrix stores them (9.7.14.5.16, sm_90).
//
// Lane 8j + i gives the address of row i of matrix j: 16 bytes, 16-byte aligned. Without transposition, register j of
// lane l holds elements (l/4, 2(l%4)) and (l/4, 2(l%4)+1) of matrix j; with it, those of its transpose. All 32 lanes
// must take part.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "dev/ptx/sm90.h"
#include "dev/ptx/where.h"

#if !defined(__CUDACC__)
#include "core/simt/ldmatrix.h"
#endif

namespace ladder::ptx {

__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], const void* row LADDER_WHERE) {
#if defined(__CUDACC__)
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
#else
  simt::ldmatrix_x4(r, row, /*transposed=*/false, where);
#endif
}

__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row LADDER_WHERE) {
#if defined(__CUDACC__)
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
#else
  simt::ldmatrix_x4(r, row, /*transposed=*/true, where);
#endif
}

// The way back of ldmatrix_x4_trans.
__device__ __forceinline__ void stmatrix_x4_trans(void* row, const std::uint32_t (&r)[4] LADDER_WHERE) {
#if defined(__CUDACC__)
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  LADDER_SM90_ASM("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
                  "r"(r[1]), "r"(r[2]), "r"(r[3])
                  : "memory");
#else
  simt::stmatrix_x4_trans(row, r, where);
#endif
}

}  // namespace ladder::ptx
