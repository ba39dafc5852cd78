// A slab in shared memory, filled by cp.async: a thread's vectors are its own, so that they need no barrier.
#pragma once

#include "dev/groupnorm/slab.h"
#include "dev/ptx/cp_async.h"

namespace ladder::groupnorm {

struct SlabInSmem {
  static constexpr bool kRegistersToSpare = true;

  unsigned char* own;  // the thread's first vector; others follow after those of all threads
  int threads;
  int log_rows;
  int vectors = 0;

  // At most vectors * threads of a plan, 16 bytes each, from `smem` on.
  __device__ __forceinline__ SlabInSmem(unsigned char* smem, const SlabPlan& plan)
      : own(smem + threadIdx.x * 16), threads(plan.threads()), log_rows(plan.log_rows) {}

  // The thread's vectors lie `step` elements apart; `pixels` are those of the block from its row on.
  template <class T>
  __device__ __forceinline__ void load(const T* from, int step, int pixels) {
    vectors = pixels > 0 ? ((pixels - 1) >> log_rows) + 1 : 0;
#pragma unroll 4
    for (int i = 0; i < vectors; ++i) ptx::cp_async<16>(own + i * threads * 16, from + i * step, true);
    ptx::cp_async_commit();
  }
  __device__ __forceinline__ void wait() const { ptx::cp_async_wait<0>(); }

  template <class F>
  __device__ __forceinline__ void for_each(const F& f) const {
#pragma unroll 2
    for (int i = 0; i < vectors; ++i) f(i, *reinterpret_cast<const uint4*>(own + i * threads * 16));
  }
};

inline std::size_t slab_smem_bytes(const SlabPlan& plan) { return std::size_t{16} * plan.vectors * plan.threads(); }

}  // namespace ladder::groupnorm
