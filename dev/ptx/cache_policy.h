// Copies whose lines the L2 evicts first (PTX ISA 9.7.9.18 createpolicy, 9.7.9.25.3 cp.async; sm_80 and later).
#pragma once

#include <cstdint>

#include "dev/ptx/cp_async.h"

namespace ladder::ptx {

// Priority of a copy's lines when the L2 evicts (PTX ISA 9.7.9.18 createpolicy; sm_80 and later).
struct CachePolicy {
#if defined(__CUDACC__)
  std::uint64_t bits;
#endif
};

// Returns the policy of lines that are evicted before all others if `first`, else that of copies without a policy.
__device__ __forceinline__ CachePolicy evict_policy([[maybe_unused]] bool first) {
#if defined(__CUDACC__)
  std::uint64_t at_first = 0;
  std::uint64_t normally = 0;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(at_first));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normally));
  return {first ? at_first : normally};
#else
  return {};
#endif
}

// cp_async<16>() under a policy. The emulator has no caches.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid,
                                            [[maybe_unused]] CachePolicy policy LADDER_WHERE) {
#if defined(__CUDACC__)
  const unsigned dst = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(dst), "l"(global),
               "r"(valid ? 16 : 0), "l"(policy.bits)
               : "memory");
#else
  simt::cp_async(shared, global, 16, valid, where);
#endif
}

}  // namespace ladder::ptx
