#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;

// A halo of one element on either side, which the broken kernel's array has no room for.
template <bool kBroken>
__global__ void halo_kernel(const int* in, int* out) {
  LADDER_SHARED(int, tile, [kBroken ? kThreads : kThreads + 2]);
  const unsigned i = threadIdx.x;
  tile[i + 1] = in[i];
  if (i == 0) {
    tile[0] = 0;
    tile[kThreads + 1] = 0;
  }
  __syncthreads();
  out[i] = tile[i] + tile[i + 2];
}

bool run(bool broken) {
  Guarded<int> in(kThreads), out(kThreads, -1);
  for (int i = 0; i < kThreads; ++i) in[i] = i;
  launch(broken ? halo_kernel<true> : halo_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == (i > 0 ? i - 1 : 0) + (i + 1 < kThreads ? i + 1 : 0);
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("static_smem_out_of_bounds", "a halo that the shared array has no room for",
             ({.report = true, .asan = true, .says = "shared array tile + 132 bytes (it has 128)"}),
             ladder::faults::run);
