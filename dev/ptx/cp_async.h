// cp.async: asynchronous copies from global to shared memory, in 4, 8 or 16 bytes (PTX ISA 9.7.9.25.3, sm_80 and later).
//
// The data is visible to the issuing thread after the wait for its group, to other threads after a barrier after that
// wait. Nothing may read or write the destination in between.
#pragma once

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
