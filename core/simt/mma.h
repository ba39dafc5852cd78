// The emulated branch of dev/ptx/mma.h.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <concepts>
#include <cstdint>

#include "core/simt/runtime.h"

namespace ladder::simt {

namespace detail {

struct Mma {
  float* d;  // in and out
  const std::uint32_t* a;
  const std::uint32_t* b;
};

void complete_mma_m16n8k16_bf16(void* const (&operands)[kWarpSize], unsigned mask);
void complete_mma_m16n8k16_f16(void* const (&operands)[kWarpSize], unsigned mask);
void complete_mma_m16n8k8_tf32(void* const (&operands)[kWarpSize], unsigned mask);

inline constexpr Collective kMmaBf16{"mma.sync.m16n8k16 bf16", true, false, complete_mma_m16n8k16_bf16};
inline constexpr Collective kMmaF16{"mma.sync.m16n8k16 f16", true, false, complete_mma_m16n8k16_f16};
inline constexpr Collective kMmaTf32{"mma.sync.m16n8k8 tf32", true, false, complete_mma_m16n8k8_tf32};

}  // namespace detail

template <class T>
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Where where) {
  static_assert(std::same_as<T, __nv_bfloat16> || std::same_as<T, __half>);
  detail::Mma operands{d, a, b};
  const auto& kind = std::same_as<T, __half> ? detail::kMmaF16 : detail::kMmaBf16;
  detail::join(kind, detail::kFullMask, &operands, where);
}

inline void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Where where) {
  detail::Mma operands{d, a, b};
  detail::join(detail::kMmaTf32, detail::kFullMask, &operands, where);
}

}  // namespace ladder::simt
