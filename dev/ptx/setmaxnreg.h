// setmaxnreg: registers move between the warpgroups of a block (PTX ISA 9.7.19.5, sm_90a).
#pragma once

#include "dev/ptx/sm90.h"

namespace ladder::ptx {

// Every warp of the group calls it; the kernel has __launch_bounds__(threads, 1).
template <int kRegisters>
__device__ __forceinline__ void warpgroup_reg_dealloc() {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

template <int kRegisters>
__device__ __forceinline__ void warpgroup_reg_alloc() {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

}  // namespace ladder::ptx
