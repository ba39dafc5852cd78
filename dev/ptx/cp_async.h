// cp.async: asynchronous copies from global to shared memory, in 4, 8 or 16 bytes (PTX ISA 9.7.9.25.3, sm_80 and later).
//
// The data is visible to the issuing thread after the wait for its group, to other threads after a barrier after that
// wait. Nothing may read or write the destination in between.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "dev/ptx/where.h"

#if !defined(__CUDACC__)
#include "core/simt/cp_async.h"
#endif

namespace ladder::ptx {

// Copies kBytes from `global` to `shared`, both aligned to kBytes; with `valid` false writes zeros and reads nothing
// (`global` must still be a mapped address). 16-byte copies bypass L1.
template <int kBytes>
__device__ __forceinline__ void cp_async(void* shared, const void* global, bool valid LADDER_WHERE) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "the sizes that cp.async has");
#if defined(__CUDACC__)
  const unsigned dst = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int src_bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(global), "r"(src_bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(dst), "l"(global), "n"(kBytes), "r"(src_bytes)
                 : "memory");
  }
#else
  simt::cp_async(shared, global, kBytes, valid, where);
#endif
}

// What the L2 is to do with the lines of a copy once it is full (PTX ISA 9.7.9.18 createpolicy; sm_80 and later).
struct CachePolicy {
#if defined(__CUDACC__)
  std::uint64_t bits;
#endif
};

// `first`: such lines are evicted before all others. Otherwise as without a policy.
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

// Likewise, 16 bytes under a policy. The emulator has no caches.
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

// Closes a group of all copies this thread issued since the last commit.
__device__ __forceinline__ void cp_async_commit() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  simt::cp_async_commit();
#endif
}

// Waits until at most kPending of this thread's latest groups are unfinished.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
  simt::cp_async_wait(kPending);
#endif
}

}  // namespace ladder::ptx
