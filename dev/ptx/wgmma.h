// wgmma: a warpgroup (four consecutive warps, the first one's index divisible by four) multiplies out of shared memory,
// D = A B + D with fp32 sums (PTX ISA 9.7.15, sm_90a).
//
//     D [64 x N]  fp32 in registers: warp i of the group holds rows 16i + lane/4 (d[4j], d[4j+1]) and + 8 (d[4j+2],
//                 d[4j+3]), columns 8j + 2(lane%4) and the next
//     A [64 x K], B [N x K]  in shared memory, rows of 128 bytes under the 128-byte swizzle (dev/ptx/tma.h), or of 64 bytes
//                 under the 64-byte one: the 16-byte run j of the row at shared address a lies at run j ^ ((a >> 7) & 3).
//                 K-major: a row of memory is along K, of which an instruction takes 32 bytes: 16 elements of 16 bits, 8
//                 of tf32. MN-major (16-bit elements only): a row of memory is 64 or 32 rows of A or B at one of 16 k.
//     A [64 x K]  or in registers, rows 16i + lane/4 (a[0], a[2]) and + 8 (a[1], a[3]); of the 32 bytes of K the four from
//                 4(lane%4) on (a[0], a[1]), and those 16 bytes on (a[2], a[3])
//
// Asynchronous: between the first wgmma and the wait for its group, nobody may touch the accumulators, A's registers or the
// shared memory that it reads. Order: fence, multiplications, commit, wait, fence the operands.
#pragma once

#include <cstdint>

#include "dev/ptx/sm90.h"
#include "dev/ptx/where.h"

#if !defined(__CUDACC__)
#include "core/simt/wgmma.h"
#endif

namespace ladder::ptx {

// The descriptor's code of a tile's swizzle.
template <int kRowBytes>
constexpr std::uint64_t kWgmmaSwizzle = std::uint64_t{kRowBytes == 128 ? 1 : 2} << 62;

// Describes a K-major operand that starts at `shared` (any row of a swizzled tile, plus 32 bytes a K step) and whose groups
// of eight rows lie `group_stride` bytes apart: 8 kRowBytes where rows are dense. The start need not lie on a 128-byte
// swizzle pattern's start: the hardware XORs absolute address bits, with base_offset 0 (measured on an H200).
template <int kRowBytes = 128>
__device__ __forceinline__ std::uint64_t wgmma_descriptor(const void* shared, unsigned group_stride LADDER_WHERE) {
  static_assert(kRowBytes == 128 || kRowBytes == 64);
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  constexpr std::uint64_t kLeadingIgnored = std::uint64_t{1} << 16;
  return kWgmmaSwizzle<kRowBytes> | std::uint64_t{group_stride >> 4} << 32 | kLeadingIgnored | (address & 0x3ffff) >> 4;
#else
  return simt::wgmma_descriptor(shared, group_stride, kRowBytes, where);
#endif
}

// Describes an MN-major operand that starts at `shared`, any row of a swizzled tile: the rows of the next k follow each
// other, groups of eight k lie `group_stride` bytes apart, and the next row's worth of M or N `chunk_stride` bytes. Chunks
// may overlap: a stride of one row makes the neighbouring k the next 64 of N (measured on an H200).
template <int kRowBytes = 128>
__device__ __forceinline__ std::uint64_t wgmma_descriptor_mn(const void* shared, unsigned group_stride,
                                                             unsigned chunk_stride LADDER_WHERE) {
  static_assert(kRowBytes == 128 || kRowBytes == 64);
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  return kWgmmaSwizzle<kRowBytes> | std::uint64_t{group_stride >> 4} << 32 | std::uint64_t{chunk_stride >> 4} << 16 |
         (address & 0x3ffff) >> 4;
#else
  return simt::wgmma_descriptor_mn(shared, group_stride, chunk_stride, kRowBytes, where);
#endif
}

// The descriptor of what lies `bytes` further on, a multiple of 16.
// NOTE: the sum is of the lower halves, out of which nothing carries, so that upper halves stay constants.
__device__ __forceinline__ std::uint64_t wgmma_ahead(std::uint64_t descriptor, unsigned bytes) {
  return descriptor >> 32 << 32 | (static_cast<std::uint32_t>(descriptor) + (bytes >> 4));
}

// Before the first wgmma, and whenever accumulators or A's registers were touched by other instructions since.
__device__ __forceinline__ void wgmma_fence(LADDER_WHERE_ALONE) {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("wgmma.fence.sync.aligned;" ::: "memory");
#else
  simt::wgmma_fence(where);
#endif
}

__device__ __forceinline__ void wgmma_commit(LADDER_WHERE_ALONE) {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  simt::wgmma_commit(where);
#endif
}

// After a thread's own stores to shared memory that a wgmma will read, and before the barrier that announces them. Not
// needed for what the TMA has brought.
__device__ __forceinline__ void wgmma_fence_stores() {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("fence.proxy.async.shared::cta;" ::: "memory");
#else
  simt::fence_proxy_async();
#endif
}

// Waits until at most kPending of the latest groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait(LADDER_WHERE_ALONE) {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#else
  simt::wgmma_wait(kPending, where);
#endif
}

// NOTE: after a wait and before the first use of the sums. The compiler does not know that the wait produces them, and
// has been seen to move their first use above it.
template <int kCount>
__device__ __forceinline__ void warpgroup_fence_operand(float (&d)[kCount]) {
#if defined(__CUDACC__)
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
#else
  (void)d;
#endif
}

// The same for A's registers, which are taken until then.
template <int kCount>
__device__ __forceinline__ void warpgroup_fence_operand(std::uint32_t (&a)[kCount][4]) {
#if defined(__CUDACC__)
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int word = 0; word < 4; ++word) asm volatile("" : "+r"(a[i][word])::"memory");
  }
#else
  (void)a;
#endif
}

// d = A B, plus d where `accumulate`. T is __nv_bfloat16, __half or float (as tf32), kN 32, 64, 96, 128, 192 or 256.
template <class T, int kN>
__device__ __forceinline__ void wgmma_m64(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                          bool accumulate LADDER_WHERE);

// The same with both operands MN-major. T is __nv_bfloat16 or __half.
template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                             bool accumulate LADDER_WHERE);

// The same with A MN-major and B K-major. T is __nv_bfloat16 or __half.
template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_a_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                               bool accumulate LADDER_WHERE);

// The same with A K-major and B MN-major. T is __nv_bfloat16 or __half.
template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_b_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                               bool accumulate LADDER_WHERE);

// The same with A in registers and B K-major. T is float (as tf32) with kN 64, __half with 96, __nv_bfloat16 with 48.
template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_a_registers(float (&d)[kN / 2], const std::uint32_t (&a)[4], std::uint64_t b,
                                                      bool accumulate LADDER_WHERE);

// The same with A in registers and B MN-major. T is __nv_bfloat16 or __half, kN 32 or 64.
template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_a_registers_b_mn(float (&d)[kN / 2], const std::uint32_t (&a)[4],
                                                           std::uint64_t b, bool accumulate LADDER_WHERE);

#if defined(__CUDACC__)

// The instruction names its registers one by one: here in its text, then as its operands.
#define LADDER_WGMMA_NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define LADDER_WGMMA_NAMES_48 LADDER_WGMMA_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define LADDER_WGMMA_NAMES_64 \
  LADDER_WGMMA_NAMES_32       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LADDER_WGMMA_NAMES_96 \
  LADDER_WGMMA_NAMES_64       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define LADDER_WGMMA_NAMES_128 \
  LADDER_WGMMA_NAMES_96        \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LADDER_WGMMA_NAMES_192                                                       \
  LADDER_WGMMA_NAMES_128                                                             \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define LADDER_WGMMA_NAMES_256                                                                   \
  LADDER_WGMMA_NAMES_192                                                                         \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define LADDER_WGMMA_SUMS_16(i)                                                                               \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]),      \
      "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])
#define LADDER_WGMMA_SUMS_32 LADDER_WGMMA_SUMS_16(0)
#define LADDER_WGMMA_SUMS_48                                                                                          \
  LADDER_WGMMA_SUMS_16(0), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), \
      "+f"(d[23])
#define LADDER_WGMMA_SUMS_64 LADDER_WGMMA_SUMS_32, LADDER_WGMMA_SUMS_16(16)
#define LADDER_WGMMA_SUMS_96 LADDER_WGMMA_SUMS_64, LADDER_WGMMA_SUMS_16(32)
#define LADDER_WGMMA_SUMS_128 LADDER_WGMMA_SUMS_96, LADDER_WGMMA_SUMS_16(48)
#define LADDER_WGMMA_SUMS_192 LADDER_WGMMA_SUMS_128, LADDER_WGMMA_SUMS_16(64), LADDER_WGMMA_SUMS_16(80)
#define LADDER_WGMMA_SUMS_256 LADDER_WGMMA_SUMS_192, LADDER_WGMMA_SUMS_16(96), LADDER_WGMMA_SUMS_16(112)

// One specialisation for each N and type. `a`, `b` and `p` number the operands after the n / 2 sums.
#define LADDER_WGMMA(name, n, a, b, p, T, types, k, transpose)                                                   \
  template <>                                                                                                    \
  __device__ __forceinline__ void name<T, n>(float(&d)[n / 2], std::uint64_t a_operand, std::uint64_t b_operand, \
                                             bool accumulate) {                                                  \
    LADDER_SM90_ASM("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p                                                      \
                    ", 0;\n"                                                                                     \
                    "wgmma.mma_async.sync.aligned.m64n" #n k ".f32." types " {" LADDER_WGMMA_NAMES_##n           \
                    "}, %" #a ", %" #b ", p, 1, 1" transpose ";\n}\n"                                            \
                    : LADDER_WGMMA_SUMS_##n                                                                      \
                    : "l"(a_operand), "l"(b_operand), "r"(static_cast<int>(accumulate)));                        \
  }
#define LADDER_WGMMA_16_BITS(name, n, a, b, p, transpose)                      \
  LADDER_WGMMA(name, n, a, b, p, __nv_bfloat16, "bf16.bf16", "k16", transpose) \
  LADDER_WGMMA(name, n, a, b, p, __half, "f16.f16", "k16", transpose)
#define LADDER_WGMMA_N(n, a, b, p)                                  \
  LADDER_WGMMA_16_BITS(wgmma_m64, n, a, b, p, ", 0, 0")             \
  LADDER_WGMMA(wgmma_m64, n, a, b, p, float, "tf32.tf32", "k8", "") \
  LADDER_WGMMA_16_BITS(wgmma_m64_mn, n, a, b, p, ", 1, 1")          \
  LADDER_WGMMA_16_BITS(wgmma_m64_a_mn, n, a, b, p, ", 1, 0")        \
  LADDER_WGMMA_16_BITS(wgmma_m64_b_mn, n, a, b, p, ", 0, 1")

LADDER_WGMMA_N(32, 16, 17, 18)
LADDER_WGMMA_N(64, 32, 33, 34)
LADDER_WGMMA_N(96, 48, 49, 50)
LADDER_WGMMA_N(128, 64, 65, 66)
LADDER_WGMMA_N(192, 96, 97, 98)
LADDER_WGMMA_N(256, 128, 129, 130)

// `words` are the operands that number A's words.
#define LADDER_WGMMA_A_REGISTERS(name, n, words, b, p, T, types, k, transpose)                                        \
  template <>                                                                                                         \
  __device__ __forceinline__ void name<T, n>(float(&d)[n / 2], const std::uint32_t(&a)[4], std::uint64_t b_operand,   \
                                             bool accumulate) {                                                       \
    LADDER_SM90_ASM("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p                                                           \
                    ", 0;\n"                                                                                          \
                    "wgmma.mma_async.sync.aligned.m64n" #n k ".f32." types " {" LADDER_WGMMA_NAMES_##n                \
                    "}, {" words "}, %" #b ", p, 1, 1" transpose ";\n}\n"                                             \
                    : LADDER_WGMMA_SUMS_##n                                                                           \
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_operand), "r"(static_cast<int>(accumulate))); \
  }
#define LADDER_WGMMA_A_REGISTERS_B_MN(n, words, b, p)                                                            \
  LADDER_WGMMA_A_REGISTERS(wgmma_m64_a_registers_b_mn, n, words, b, p, __nv_bfloat16, "bf16.bf16", "k16", ", 1") \
  LADDER_WGMMA_A_REGISTERS(wgmma_m64_a_registers_b_mn, n, words, b, p, __half, "f16.f16", "k16", ", 1")

LADDER_WGMMA_A_REGISTERS(wgmma_m64_a_registers, 64, "%32, %33, %34, %35", 36, 37, float, "tf32.tf32", "k8", "")
LADDER_WGMMA_A_REGISTERS(wgmma_m64_a_registers, 48, "%24, %25, %26, %27", 28, 29, __nv_bfloat16, "bf16.bf16", "k16",
                         ", 0")
LADDER_WGMMA_A_REGISTERS(wgmma_m64_a_registers, 96, "%48, %49, %50, %51", 52, 53, __half, "f16.f16", "k16", ", 0")
LADDER_WGMMA_A_REGISTERS_B_MN(32, "%16, %17, %18, %19", 20, 21)
LADDER_WGMMA_A_REGISTERS_B_MN(64, "%32, %33, %34, %35", 36, 37)

#undef LADDER_WGMMA_A_REGISTERS
#undef LADDER_WGMMA_A_REGISTERS_B_MN
#undef LADDER_WGMMA
#undef LADDER_WGMMA_16_BITS
#undef LADDER_WGMMA_N

#else

template <class T, int kN>
__device__ __forceinline__ void wgmma_m64(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                          bool accumulate LADDER_WHERE_IN) {
  simt::wgmma_m64<T, kN>(d, a, b, accumulate, where);
}

template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                             bool accumulate LADDER_WHERE_IN) {
  simt::wgmma_m64_mn<T, kN>(d, a, b, accumulate, where);
}

template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_a_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                               bool accumulate LADDER_WHERE_IN) {
  simt::wgmma_m64_a_mn<T, kN>(d, a, b, accumulate, where);
}

template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_b_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                               bool accumulate LADDER_WHERE_IN) {
  simt::wgmma_m64_b_mn<T, kN>(d, a, b, accumulate, where);
}

template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_a_registers(float (&d)[kN / 2], const std::uint32_t (&a)[4], std::uint64_t b,
                                                      bool accumulate LADDER_WHERE_IN) {
  simt::wgmma_m64_a_registers<T, kN>(d, a, b, accumulate, where);
}

template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_a_registers_b_mn(float (&d)[kN / 2], const std::uint32_t (&a)[4],
                                                           std::uint64_t b, bool accumulate LADDER_WHERE_IN) {
  simt::wgmma_m64_a_registers_b_mn<T, kN>(d, a, b, accumulate, where);
}

#endif

}  // namespace ladder::ptx
