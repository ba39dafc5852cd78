// Addresses in the shared memory of a cluster's blocks (PTX ISA 9.7.9.24 mapa; sm_90 and later).
#pragma once

#include <cstdint>

#include "dev/ptx/sm90.h"
#include "dev/ptx/where.h"

#if !defined(__CUDACC__)
#include "core/simt/cluster.h"
#endif

namespace ladder::ptx {

// A T in the shared memory of any block of the cluster. Not a C++ pointer: only the functions below take it.
template <class T>
struct ClusterPointer {
#if defined(__CUDACC__)
  std::uint32_t address;  // in the window .shared::cluster
#else
  T* address;
#endif

  __device__ __forceinline__ ClusterPointer operator+(int elements) const {
#if defined(__CUDACC__)
    return {address + elements * static_cast<std::uint32_t>(sizeof(T))};
#else
    return {address + elements};
#endif
  }
};

// Returns the address in block `rank` of the cluster that matches `shared`, static or dynamic, of the calling block.
template <class T>
__device__ __forceinline__ ClusterPointer<T> mapa(T* shared, unsigned rank LADDER_WHERE) {
#if defined(__CUDACC__)
  const auto local_address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  std::uint32_t address = 0;
  LADDER_SM90(asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(local_address), "r"(rank)));
  return {address};
#else
  return {static_cast<T*>(simt::detail::map_shared(shared, rank, where))};
#endif
}

}  // namespace ladder::ptx
