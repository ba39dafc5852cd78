// Barriers and fences.
#pragma once

#include "core/simt/runtime.h"

inline void __syncthreads(ladder::simt::Where where = ladder::simt::Where::here()) {
  ladder::simt::detail::join_block(ladder::simt::detail::Reduction::none, 0, where);
}
inline int __syncthreads_count(int predicate, ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::join_block(ladder::simt::detail::Reduction::count, predicate, where);
}
inline int __syncthreads_and(int predicate, ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::join_block(ladder::simt::detail::Reduction::all, predicate, where);
}
inline int __syncthreads_or(int predicate, ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::join_block(ladder::simt::detail::Reduction::any, predicate, where);
}

namespace ladder::simt::detail {
inline constexpr Collective kSyncWarp{
    .name = "__syncwarp", .aligned = false, .orders_memory = true, .complete = nullptr};
}

inline void __syncwarp(unsigned mask = ladder::simt::detail::kFullMask,
                       ladder::simt::Where where = ladder::simt::Where::here()) {
  ladder::simt::detail::join(ladder::simt::detail::kSyncWarp, mask, nullptr, where);
}

// Fences order a thread's accesses for atomics that follow; the emulator's memory is in order anyway.
inline void __threadfence() {
  ladder::simt::detail::release_fence();
  ladder::simt::detail::acquire_fence();
}
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }

inline unsigned __activemask() { return ladder::simt::detail::active_mask(); }

[[noreturn]] inline void __trap(ladder::simt::Where where = ladder::simt::Where::here()) {
  ladder::simt::detail::fault("__trap", where);
}

// Other threads run first, for no stated time: a loop that polls memory may sleep in its body.
inline void __nanosleep(unsigned, ladder::simt::Where where = ladder::simt::Where::here()) {
  ladder::simt::detail::sleep(where);
}
