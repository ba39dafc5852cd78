#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 64;

// A relaxed arrival at the cluster's barrier orders the init of an mbarrier for other warps only after a fence of its own.
template <bool kBroken>
__global__ void start_kernel(int* out) {
  LADDER_SHARED(ptx::Mbarrier, arrived, );
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&arrived, kThreads);
    if (!kBroken) ptx::mbarrier_fence_init();
  }
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
  ptx::mbarrier_arrive(&arrived);
  ptx::mbarrier_wait(&arrived, 0);
  out[threadIdx.x] = 1;
}

bool run(bool broken) {
  Guarded<int> out(kThreads, 0);
  launch(broken ? start_kernel<true> : start_kernel<false>, {1, kThreads}, nullptr, out.get());
  int sum = 0;
  for (int i = 0; i < kThreads; ++i) sum += out[i];
  return sum == kThreads;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("mbarrier_init_unfenced", "a relaxed arrival after an mbarrier's init, without the fence for inits",
             ({.order = true}), ladder::faults::run);
