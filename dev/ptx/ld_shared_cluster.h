// Loads from the shared memory of a cluster's blocks (PTX ISA 9.7.9.8 ld; sm_90 and later). A block's memory is there from its
// start to its end, so a kernel needs a cluster barrier before its first access to another block's memory and one after its
// last, besides those that order the data itself:
//
//     ptx::cluster_sync();                              // all blocks have started, and their stores are visible
//     float x = ptx::ld_shared_cluster(ptx::mapa(&part, rank));
//     ptx::cluster_sync();                              // all have read: each may overwrite its part, or end
#pragma once

#include <cstring>
#include <type_traits>

#include "dev/ptx/cluster_pointer.h"

namespace ladder::ptx {

// T has 4, 8 or 16 bytes, and the address is a multiple of them.
template <class T>
__device__ __forceinline__ std::remove_const_t<T> ld_shared_cluster(ClusterPointer<T> from LADDER_WHERE) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16));
  std::remove_const_t<T> value;
#if defined(__CUDACC__)
  std::uint32_t words[sizeof(T) / 4];
  if constexpr (sizeof(T) == 4) {
    LADDER_SM90_ASM("ld.shared::cluster.b32 %0, [%1];" : "=r"(words[0]) : "r"(from.address) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    LADDER_SM90_ASM("ld.shared::cluster.v2.b32 {%0, %1}, [%2];"
                    : "=r"(words[0]), "=r"(words[1])
                    : "r"(from.address)
                    : "memory");
  } else {
    LADDER_SM90_ASM("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                    : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                    : "r"(from.address)
                    : "memory");
  }
  memcpy(&value, words, sizeof(T));
#else
  simt::ld_shared_cluster(from.address, &value, sizeof(T), where);
#endif
  return value;
}

}  // namespace ladder::ptx
