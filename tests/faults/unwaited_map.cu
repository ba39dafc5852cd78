#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/tma.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;

// Prefetches a tensor map in device memory, or one that is a kernel parameter, before the wait.
template <bool kBroken>
__global__ void prefetch_kernel(const __grid_constant__ ptx::TensorMap map, const ptx::TensorMap* device_map, int* y) {
  if (threadIdx.x == 0) ptx::tma_prefetch(kBroken ? *device_map : map);
  ptx::grid_dependency_wait();
  y[threadIdx.x] = 1;
}

bool run(bool broken) {
  Guarded<float> x(kThreads, 1, "x");
  Guarded<int> y(kThreads, -1, "y");
  const auto map = ptx::make_tensor_map(Dtype::f32, x.get(), {kThreads, 1, 1}, {kThreads, 1, 1});
  Guarded<ptx::TensorMap> maps(1, map, "map");
  launch(broken ? prefetch_kernel<true> : prefetch_kernel<false>,
         {.grid = 1, .block = kThreads, .overlaps_previous = true}, nullptr, map, maps.get(), y.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= y[i] == 1;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("unwaited_map", "prefetches a tensor map that the kernel in front may write before it waits for that",
             ({.report = true,
               .says = "a read before griddepcontrol.wait: the kernel in front may not have written it yet: map + "}),
             ladder::faults::run);
