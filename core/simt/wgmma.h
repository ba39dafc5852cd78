// The emulated branch of dev/ptx/wgmma.h. Accumulators are NaN from the issue until the wait for their group. A
// multiplication reads shared memory, and A if it is in registers, at a time that depends on the schedule: ascending,
// when the warpgroup's last warp issues it; descending, at the first wait that covers it; seeded, at either. It is
// finished once all four warps have issued it, so that one warp's wait speaks for the whole warpgroup's reads, as on
// the GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "core/simt/runtime.h"

namespace ladder::simt {

namespace detail {

enum class WgmmaFormat : std::uint8_t { bf16, f16, tf32 };

// Operands of one lane.
struct Wgmma {
  float* d;  // [n / 2]
  std::uint64_t a;
  const std::uint32_t* a_registers;  // [4], instead of a; or null
  std::uint64_t b;
  int n;
  WgmmaFormat format;
  bool a_mn_major;
  bool b_mn_major;
  bool accumulate;
  Where where;
};

void issue_wgmma(Wgmma& operands);

}  // namespace detail

// Matrix descriptors in the hardware's format, in units of 16 bytes: bits 0-13 start, 16-29 stride of chunks (MN-major
// only), 32-45 stride of groups; 62-63 swizzle, of rows of 128 or 64 bytes. Shared addresses count from the start of
// the dynamic part.
std::uint64_t wgmma_descriptor(const void* shared, unsigned group_stride, int row_bytes, Where where = Where::here());
std::uint64_t wgmma_descriptor_mn(const void* shared, unsigned group_stride, unsigned chunk_stride, int row_bytes,
                                  Where where = Where::here());

void fence_proxy_async();
void wgmma_fence(Where where = Where::here());
void wgmma_commit(Where where = Where::here());
void wgmma_wait(int pending, Where where = Where::here());

namespace detail {

template <class T, int kN>
void multiply_m64(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b, bool a_mn_major, bool b_mn_major,
                  bool accumulate, Where where, const std::uint32_t* a_registers = nullptr) {
  static_assert(kN % 8 == 0 && kN >= 8 && kN <= 256, "the widths that wgmma has");
  static_assert(std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half> || std::is_same_v<T, float>,
                "the element types that the emulator has");
  constexpr WgmmaFormat kFormat = std::is_same_v<T, __nv_bfloat16> ? WgmmaFormat::bf16
                                  : std::is_same_v<T, __half>      ? WgmmaFormat::f16
                                                                   : WgmmaFormat::tf32;
  Wgmma operands{d, a, a_registers, b, kN, kFormat, a_mn_major, b_mn_major, accumulate, where};
  issue_wgmma(operands);
}

}  // namespace detail

template <class T, int kN>
void wgmma_m64(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b, bool accumulate, Where where = Where::here()) {
  detail::multiply_m64<T, kN>(d, a, b, /*a_mn_major=*/false, /*b_mn_major=*/false, accumulate, where);
}

template <class T, int kN>
void wgmma_m64_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b, bool accumulate, Where where = Where::here()) {
  static_assert(sizeof(T) == 2, "MN-major operands have 16-bit elements");
  detail::multiply_m64<T, kN>(d, a, b, /*a_mn_major=*/true, /*b_mn_major=*/true, accumulate, where);
}

template <class T, int kN>
void wgmma_m64_a_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b, bool accumulate,
                    Where where = Where::here()) {
  static_assert(sizeof(T) == 2, "MN-major operands have 16-bit elements");
  detail::multiply_m64<T, kN>(d, a, b, /*a_mn_major=*/true, /*b_mn_major=*/false, accumulate, where);
}

template <class T, int kN>
void wgmma_m64_b_mn(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b, bool accumulate,
                    Where where = Where::here()) {
  static_assert(sizeof(T) == 2, "MN-major operands have 16-bit elements");
  detail::multiply_m64<T, kN>(d, a, b, /*a_mn_major=*/false, /*b_mn_major=*/true, accumulate, where);
}

template <class T, int kN>
void wgmma_m64_a_registers(float (&d)[kN / 2], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate,
                           Where where = Where::here()) {
  detail::multiply_m64<T, kN>(d, 0, b, /*a_mn_major=*/false, /*b_mn_major=*/false, accumulate, where, a);
}

template <class T, int kN>
void wgmma_m64_a_registers_b_mn(float (&d)[kN / 2], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate,
                                Where where = Where::here()) {
  static_assert(sizeof(T) == 2, "MN-major operands have 16-bit elements");
  detail::multiply_m64<T, kN>(d, 0, b, /*a_mn_major=*/false, /*b_mn_major=*/true, accumulate, where, a);
}

}  // namespace ladder::simt
