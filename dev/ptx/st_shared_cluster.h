// Stores into the shared memory of a cluster's blocks (PTX ISA 9.7.9.11 st; sm_90 and later). A cluster barrier makes them
// visible: see ld_shared_cluster.h.
#pragma once

#include <cstring>
#include <type_traits>

#include "dev/ptx/cluster_pointer.h"

namespace ladder::ptx {

// T has 4, 8 or 16 bytes, and the address is a multiple of them.
template <class T>
__device__ __forceinline__ void st_shared_cluster(ClusterPointer<T> to, std::type_identity_t<T> value LADDER_WHERE) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16));
#if defined(__CUDACC__)
  std::uint32_t words[sizeof(T) / 4];
  memcpy(words, &value, sizeof(T));
  if constexpr (sizeof(T) == 4) {
    LADDER_SM90_ASM("st.shared::cluster.b32 [%0], %1;" ::"r"(to.address), "r"(words[0]) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    LADDER_SM90_ASM("st.shared::cluster.v2.b32 [%0], {%1, %2};" ::"r"(to.address), "r"(words[0]), "r"(words[1])
                    : "memory");
  } else {
    LADDER_SM90_ASM("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to.address), "r"(words[0]), "r"(words[1]),
                    "r"(words[2]), "r"(words[3])
                    : "memory");
  }
#else
  simt::st_shared_cluster(to.address, &value, sizeof(T), where);
#endif
}

}  // namespace ladder::ptx
