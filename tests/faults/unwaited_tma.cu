#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/tma.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;
constexpr int kBytes = kThreads * sizeof(float);

// A thread fetches x for the others.
template <bool kBroken>
__global__ void fetch_kernel(const __grid_constant__ ptx::TensorMap map, float* y) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(ptx::Mbarrier, full, );
  if (!kBroken) ptx::grid_dependency_wait();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_fence_init();
    ptx::mbarrier_arrive_expect_tx(&full, kBytes);
    ptx::tma_load(smem, map, &full, 0, 0, 0);
  }
  __syncthreads();
  ptx::mbarrier_wait(&full, 0);
  if (kBroken) ptx::grid_dependency_wait();
  y[threadIdx.x] = reinterpret_cast<const float*>(smem)[threadIdx.x];
}

bool run(bool broken) {
  Guarded<float> x(kThreads, 1, "x"), y(kThreads, -1, "y");
  const auto map = ptx::make_tensor_map(Dtype::f32, x.get(), {kThreads, 1, 1}, {kThreads, 1, 1});
  launch(broken ? fetch_kernel<true> : fetch_kernel<false>,
         {.grid = 1, .block = kThreads, .dynamic_smem = 1024, .overlaps_previous = true}, nullptr, map, y.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= y[i] == 1;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("unwaited_tma", "fetches what the kernel in front writes before it waits for that",
             ({.report = true,
               .says = "tma_load before griddepcontrol.wait: the kernel in front may not have written the tensor yet"}),
             ladder::faults::run);
