// wgmma: a warpgroup (four consecutive warps, the first one's index divisible by four) multiplies out of shared memory,
// D = A B + D with fp32 sums (PTX ISA 9.7.15, sm_90a).
//
//     D [64 x N]  fp32 in registers: warp i of the group holds rows 16i + lane/4 (d[4j], d[4j+1]) and + 8 (d[4j+2],
//                 d[4j+3]), columns 8j + 2(lane%4) and the next
//     A [64 x K], B [N x K]  in shared memory, rows of 128 bytes under the 128-byte swizzle (dev/ptx/tma.h). K-major: a row
//                 of memory is along K, of which an instruction takes 32 bytes: 16 elements of 16 bits, 8 of tf32.
//                 MN-major (16-bit elements only): a row of memory is 64 rows of A or B at one of 16 k.
//
// Asynchronous: between the first wgmma and the wait for its group, nobody may touch the accumulators or the shared
// memory that it reads. Order: fence, multiplications, commit, wait, keep.
#pragma once

#include <cstdint>

#include "dev/ptx/sm90.h"
#include "dev/ptx/where.h"

#if !defined(__CUDACC__)
#include "core/simt/wgmma.h"
#endif

namespace ladder::ptx {

// Describes a K-major operand that starts at `shared` (any 128-byte row of a swizzled tile, plus 32 bytes a K step) and
// whose groups of eight rows lie `group_stride` bytes apart: 1024 where rows are dense. The start need not lie on a
// swizzle pattern's start: the hardware XORs absolute address bits, with base_offset 0 (measured on an H200).
__device__ __forceinline__ std::uint64_t wgmma_descriptor(const void* shared, unsigned group_stride LADDER_WHERE) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kLeadingIgnored = std::uint64_t{1} << 16;
  return kSwizzle128 | std::uint64_t{group_stride >> 4} << 32 | kLeadingIgnored | (address & 0x3ffff) >> 4;
#else
  return simt::wgmma_descriptor(shared, group_stride, where);
#endif
}

// Describes an MN-major operand that starts at `shared`, any 128-byte row of a swizzled tile: the rows of the next k follow
// each other, groups of eight k lie `group_stride` bytes apart, and the next 64 of M or N `chunk_stride` bytes. Chunks may
// overlap: a stride of one row makes the neighbouring k the next 64 of N (measured on an H200).
__device__ __forceinline__ std::uint64_t wgmma_descriptor_mn(const void* shared, unsigned group_stride,
                                                             unsigned chunk_stride LADDER_WHERE) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  return kSwizzle128 | std::uint64_t{group_stride >> 4} << 32 | std::uint64_t{chunk_stride >> 4} << 16 |
         (address & 0x3ffff) >> 4;
#else
  return simt::wgmma_descriptor_mn(shared, group_stride, chunk_stride, where);
#endif
}

// Before the first wgmma, and whenever accumulators were touched by other instructions since.
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

// d = A B, plus d where `accumulate`. T is __nv_bfloat16, __half or float (as tf32).
template <class T, int kN>
__device__ __forceinline__ void wgmma_m64(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                          bool accumulate LADDER_WHERE);

// The same with both operands MN-major. T is __nv_bfloat16 or __half, kN 64, 128 or 192.
template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                             bool accumulate LADDER_WHERE);

// The same with A K-major and B MN-major. T is __nv_bfloat16 or __half, kN 64, 96, 128 or 192.
template <class T, int kN>
__device__ __forceinline__ void wgmma_m64_b_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                               bool accumulate LADDER_WHERE);

// Moves registers between warpgroups: every warp of the group calls it, the kernel has __launch_bounds__(threads, 1).
template <int kRegisters>
__device__ __forceinline__ void warpgroup_reg_dealloc() {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

template <int kRegisters>
__device__ __forceinline__ void warpgroup_reg_alloc() {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

#if defined(__CUDACC__)

// One specialisation for each N and type: the instruction names its registers one by one.
#define LADDER_WGMMA_N64(name, T, types, k, transpose)                                                                \
  template <>                                                                                                         \
  __device__ __forceinline__ void name<T, 64>(float(&d)[32], std::uint64_t a, std::uint64_t b, bool accumulate) {     \
    LADDER_SM90_ASM(                                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                                  \
        "wgmma.mma_async.sync.aligned.m64n64" k ".f32." types                                                         \
        " {"                                                                                                          \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "                  \
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                                                  \
        "}, %32, %33, p, 1, 1" transpose ";\n}\n"                                                                     \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),      \
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),     \
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])                   \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                                         \
  }

#define LADDER_WGMMA_N96(name, T, types, k, transpose)                                                                \
  template <>                                                                                                         \
  __device__ __forceinline__ void name<T, 96>(float(&d)[48], std::uint64_t a, std::uint64_t b, bool accumulate) {     \
    LADDER_SM90_ASM(                                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %50, 0;\n"                                                                  \
        "wgmma.mma_async.sync.aligned.m64n96" k ".f32." types                                                         \
        " {"                                                                                                          \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "                  \
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "                  \
        "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47"                                                            \
        "}, %48, %49, p, 1, 1" transpose ";\n}\n"                                                                     \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),      \
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),     \
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),     \
          "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),     \
          "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])                   \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                                         \
  }

#define LADDER_WGMMA_N128(name, T, types, k, transpose)                                                               \
  template <>                                                                                                         \
  __device__ __forceinline__ void name<T, 128>(float(&d)[64], std::uint64_t a, std::uint64_t b, bool accumulate) {    \
    LADDER_SM90_ASM(                                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                                  \
        "wgmma.mma_async.sync.aligned.m64n128" k ".f32." types                                                        \
        " {"                                                                                                          \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "                  \
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "                  \
        "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "                  \
        "%56, %57, %58, %59, %60, %61, %62, %63"                                                                      \
        "}, %64, %65, p, 1, 1" transpose ";\n}\n"                                                                     \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),      \
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),     \
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),     \
          "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),     \
          "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),     \
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),     \
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])                   \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                                         \
  }

#define LADDER_WGMMA_N192(name, T, types, k, transpose)                                                               \
  template <>                                                                                                         \
  __device__ __forceinline__ void name<T, 192>(float(&d)[96], std::uint64_t a, std::uint64_t b, bool accumulate) {    \
    LADDER_SM90_ASM(                                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"                                                                  \
        "wgmma.mma_async.sync.aligned.m64n192" k ".f32." types                                                        \
        " {"                                                                                                          \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "                  \
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "                  \
        "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "                  \
        "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, "                  \
        "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "                  \
        "%92, %93, %94, %95"                                                                                          \
        "}, %96, %97, p, 1, 1" transpose ";\n}\n"                                                                     \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),      \
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),     \
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),     \
          "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),     \
          "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),     \
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),     \
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]),     \
          "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]),     \
          "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]),     \
          "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]),     \
          "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])                   \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                                         \
  }

#define LADDER_WGMMA_N256(name, T, types, k, transpose)                                                                \
  template <>                                                                                                          \
  __device__ __forceinline__ void name<T, 256>(float(&d)[128], std::uint64_t a, std::uint64_t b, bool accumulate) {    \
    LADDER_SM90_ASM(                                                                                                   \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                                                                  \
        "wgmma.mma_async.sync.aligned.m64n256" k ".f32." types                                                         \
        " {"                                                                                                           \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "                   \
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "                   \
        "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "                   \
        "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, "                   \
        "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "                   \
        "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "                     \
        "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "                   \
        "%123, %124, %125, %126, %127"                                                                                 \
        "}, %128, %129, p, 1, 1" transpose ";\n}\n"                                                                    \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),  \
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),       \
          "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),      \
          "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),      \
          "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),      \
          "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),      \
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),      \
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]),      \
          "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]),      \
          "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]),      \
          "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]),      \
          "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]),      \
          "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), \
          "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),            \
          "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]),            \
          "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]),            \
          "+f"(d[126]), "+f"(d[127])                                                                                   \
        : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                                                          \
  }

#define LADDER_WGMMA(n)                                                                        \
  LADDER_WGMMA_N##n(wgmma_m64, __nv_bfloat16, "bf16.bf16", "k16", ", 0, 0") LADDER_WGMMA_N##n( \
      wgmma_m64, __half, "f16.f16", "k16", ", 0, 0") LADDER_WGMMA_N##n(wgmma_m64, float, "tf32.tf32", "k8", "")

LADDER_WGMMA(64)
LADDER_WGMMA(96)
LADDER_WGMMA(128)
LADDER_WGMMA(192)
LADDER_WGMMA(256)

#define LADDER_WGMMA_MN(n)                                                     \
  LADDER_WGMMA_N##n(wgmma_m64_mn, __nv_bfloat16, "bf16.bf16", "k16", ", 1, 1") \
      LADDER_WGMMA_N##n(wgmma_m64_mn, __half, "f16.f16", "k16", ", 1, 1")

LADDER_WGMMA_MN(64)
LADDER_WGMMA_MN(128)
LADDER_WGMMA_MN(192)

#define LADDER_WGMMA_B_MN(n)                                                     \
  LADDER_WGMMA_N##n(wgmma_m64_b_mn, __nv_bfloat16, "bf16.bf16", "k16", ", 0, 1") \
      LADDER_WGMMA_N##n(wgmma_m64_b_mn, __half, "f16.f16", "k16", ", 0, 1")

LADDER_WGMMA_B_MN(64)
LADDER_WGMMA_B_MN(96)
LADDER_WGMMA_B_MN(128)
LADDER_WGMMA_B_MN(192)

#undef LADDER_WGMMA
#undef LADDER_WGMMA_MN
#undef LADDER_WGMMA_B_MN
#undef LADDER_WGMMA_N64
#undef LADDER_WGMMA_N96
#undef LADDER_WGMMA_N128
#undef LADDER_WGMMA_N192
#undef LADDER_WGMMA_N256

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
__device__ __forceinline__ void wgmma_m64_b_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                               bool accumulate LADDER_WHERE_IN) {
  simt::wgmma_m64_b_mn<T, kN>(d, a, b, accumulate, where);
}

#endif

}  // namespace ladder::ptx
