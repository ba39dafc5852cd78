#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 128;

// Block 1 stores a row into block 0's memory, and one of its threads arrives for all.
template <bool kBroken>
__global__ void send_kernel(int* out) {
  LADDER_SHARED(ptx::Mbarrier, full, );
  LADDER_SHARED(int, inbox, [kThreads]);
  const unsigned i = threadIdx.x;
  if (i == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_fence_init();
  }
  ptx::cluster_sync();
  if (ptx::cluster_rank() == 1) {
    ptx::st_shared_cluster(ptx::mapa(&inbox[i], 0), static_cast<int>(i));
    if (!kBroken) __syncthreads();
    if (i == 0) ptx::mbarrier_arrive_cluster(ptx::mapa(&full, 0));
  } else {
    ptx::mbarrier_wait_cluster(&full, 0);
    out[i] = inbox[kThreads - 1 - i];
  }
  ptx::cluster_sync();
}

bool run(bool broken) {
  Guarded<int> out(kThreads, -1);
  launch(broken ? send_kernel<true> : send_kernel<false>, {2, kThreads, 0, 2}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == kThreads - 1 - i;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_arrive_for_all", "a thread arrives at another block's mbarrier before its own block has stored",
             ({.value = true, .order = true}), ladder::faults::run);
