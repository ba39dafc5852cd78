#include "core/early_tensors.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/tma.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;
constexpr int kBytes = kThreads * sizeof(float);

// One thread loads w before its wait.
__global__ void early_kernel(const __grid_constant__ ptx::TensorMap map, float* y) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(ptx::Mbarrier, full, );
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_fence_init();
    ptx::mbarrier_arrive_expect_tx(&full, kBytes);
    ptx::tma_load(smem, map, &full, 0, 0, 0);
  }
  ptx::grid_dependency_wait();
  __syncthreads();
  ptx::mbarrier_wait(&full, 0);
  y[threadIdx.x] = reinterpret_cast<const float*>(smem)[threadIdx.x];
}

// The caller declares w, or by mistake y.
bool run(bool broken) {
  Guarded<float> w(kThreads, 1, "w"), y(kThreads, -1, "y");
  const EarlyTensors early({broken ? y.get() : w.get()});
  const auto map = ptx::make_tensor_map(Dtype::f32, w.get(), {kThreads, 1, 1}, {kThreads, 1, 1});
  launch(early_kernel, {.grid = 1, .block = kThreads, .dynamic_smem = 1024, .overlaps_previous = true}, nullptr, map,
         y.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= y[i] == 1;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("undeclared_weights", "loads a tensor early that the caller has not declared as constant",
             ({.report = true,
               .says = "tma_load before griddepcontrol.wait: the kernel in front may not have written the tensor yet"}),
             ladder::faults::run);
