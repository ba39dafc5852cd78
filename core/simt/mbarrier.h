// The emulated branch of dev/ptx/mbarrier.h. The 8 bytes hold what the hardware's do: arrivals expected and outstanding,
// bytes outstanding, and the phase's parity. A wait blocks the fiber. A waiter that misses a whole phase, which on the
// GPU may hang, is a Fault.
#pragma once

#include <cstdint>

#include "core/simt/runtime.h"

namespace ladder::simt {

namespace detail {

void init_mbarrier(std::uint64_t* barrier, unsigned arrivals, Where where);
void fence_mbarrier_init(Where where);
// One arrival; announces `bytes` of copies first.
void arrive_mbarrier(std::uint64_t* barrier, std::uint32_t bytes, Where where);
void wait_mbarrier(std::uint64_t* barrier, unsigned parity, bool cluster_scope, Where where);
// One arrival at a barrier of any block of the cluster. Without `release` it orders nothing but itself.
void arrive_mbarrier_from_cluster(std::uint64_t* barrier, bool release, Where where);

// NOTE: a load that sanitizers see: the barrier must have been made visible by whoever initialised it.
inline void touch(const std::uint64_t* barrier) {
  if (reinterpret_cast<std::uintptr_t>(barrier) % sizeof(*barrier) == 0 && is_shared(barrier, sizeof(*barrier))) {
    static_cast<void>(*static_cast<const volatile std::uint64_t*>(barrier));
  }
}

}  // namespace detail

inline void mbarrier_init(std::uint64_t* barrier, unsigned arrivals, Where where = Where::here()) {
  detail::init_mbarrier(barrier, arrivals, where);
  *static_cast<volatile std::uint64_t*>(barrier) = *barrier;  // sanitizers see the store
}

inline void mbarrier_fence_init(Where where) { detail::fence_mbarrier_init(where); }

inline void mbarrier_arrive(std::uint64_t* barrier, Where where = Where::here()) {
  detail::touch(barrier);
  detail::arrive_mbarrier(barrier, 0, where);
}

inline void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes, Where where = Where::here()) {
  detail::touch(barrier);
  detail::arrive_mbarrier(barrier, bytes, where);
}

inline void mbarrier_wait(std::uint64_t* barrier, unsigned parity, Where where = Where::here()) {
  detail::touch(barrier);
  detail::wait_mbarrier(barrier, parity, /*cluster_scope=*/false, where);
}

inline void mbarrier_wait_cluster(std::uint64_t* barrier, unsigned parity, Where where = Where::here()) {
  detail::touch(barrier);
  detail::wait_mbarrier(barrier, parity, /*cluster_scope=*/true, where);
}

inline void mbarrier_arrive_cluster(std::uint64_t* barrier, Where where = Where::here()) {
  detail::arrive_mbarrier_from_cluster(barrier, /*release=*/true, where);
}

inline void mbarrier_arrive_cluster_relaxed(std::uint64_t* barrier, Where where = Where::here()) {
  detail::arrive_mbarrier_from_cluster(barrier, /*release=*/false, where);
}

}  // namespace ladder::simt
