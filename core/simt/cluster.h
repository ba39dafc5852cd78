// The emulated branch of dev/ptx/cluster.h. The blocks of a cluster run together, interleaved by the schedule. Every
// access to another block's shared memory is checked: it must lie within that block's allocation, the block must be
// known to have started, and it may not end before something orders the access before its end.
#pragma once

#include <cstdint>

#include "core/simt/atomics.h"
#include "core/simt/cp_async.h"
#include "core/simt/runtime.h"

namespace ladder::simt {

namespace detail {

// Returns the address in block `rank` of the cluster that corresponds to `address` in the calling block (mapa).
void* map_shared(const void* address, unsigned rank, Where where);

// Throws Fault unless the instruction `what` may access [address, address + bytes).
void check_cluster_access(const void* address, std::size_t bytes, const char* what, Where where);

}  // namespace detail

inline unsigned cluster_rank() { return detail::current->cluster_rank; }
inline unsigned cluster_size() { return detail::current->cluster_size; }

void cluster_arrive(Where where);
void cluster_arrive_relaxed(Where where);  // orders no accesses, which preset order sees
void cluster_wait(Where where);

inline void ld_shared_cluster(const void* address, void* value, int bytes, Where where) {
  detail::check_cluster_access(address, bytes, "ld.shared::cluster", where);
  const auto* const from = static_cast<const detail::Word*>(address);
  for (int i = 0; i < bytes / 4; ++i) static_cast<detail::Word*>(value)[i] = from[i];
}

inline void st_shared_cluster(void* address, const void* value, int bytes, Where where) {
  detail::check_cluster_access(address, bytes, "st.shared::cluster", where);
  auto* const to = static_cast<detail::Word*>(address);
  for (int i = 0; i < bytes / 4; ++i) to[i] = static_cast<const detail::Word*>(value)[i];
}

// Store asynchronously, landing as copies of tma.h do: the destination is NaN until then.
void st_async(void* address, const void* value, int bytes, std::uint64_t* barrier, Where where);

template <class T>
T atomic_add_shared_cluster(T* address, T value, Where where) {
  detail::check_cluster_access(address, sizeof(T), "atom.shared::cluster", where);
  return atomicAdd(address, value);
}

}  // namespace ladder::simt
