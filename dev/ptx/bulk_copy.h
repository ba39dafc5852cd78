// Bulk copies from global to shared memory without a tensor map (PTX ISA 9.7.9.25.4.1 cp.async.bulk; sm_90 and later).
#pragma once

#include <cstdint>

#include "dev/ptx/mbarrier.h"
#include "dev/ptx/sm90.h"
#include "dev/ptx/where.h"

#if defined(__CUDACC__)
#include <cuda/ptx>
#else
#include "core/simt/bulk_copy.h"
#endif

namespace ladder::ptx {

// Starts a copy, by one thread, whose bytes complete on `barrier`. Both addresses and `bytes` are multiples of 16, and
// `shared` is dynamic shared memory.
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, std::uint32_t bytes,
                                          Mbarrier* barrier LADDER_WHERE) {
#if defined(__CUDACC__)
  LADDER_SM90(
      cuda::ptx::cp_async_bulk(cuda::ptx::space_cluster, cuda::ptx::space_global, shared, global, bytes, barrier));
#else
  simt::bulk_copy(shared, global, bytes, barrier, where);
#endif
}

}  // namespace ladder::ptx
