// Kernels that break the rule of dev/ptx/grid_dependency.h, or keep it.
#pragma once

#include "dev/ptx/grid_dependency.h"
#include "tests/faults/faults.h"

namespace ladder::faults {

enum class Unwaited { none, read, write, thread, grid, launch, flags };

constexpr int kUnwaitedThreads = 64;
constexpr int kUnwaitedSize = 4 * kUnwaitedThreads;

// y = x + 1.
template <Unwaited kWhat>
__global__ void unwaited_kernel(const int* x, int* y) {
  const unsigned i = blockIdx.x * kUnwaitedThreads + threadIdx.x;
  int value = 0;
  if (kWhat == Unwaited::read) value = x[i];
  if (kWhat == Unwaited::write) y[i] = 0;
  if (kWhat == Unwaited::launch) ptx::grid_dependency_launch();
  if (kWhat != Unwaited::thread || threadIdx.x < kUnwaitedThreads - 1) {
    ptx::grid_dependency_wait();
    ptx::grid_dependency_launch();
  }
  __syncthreads();
  if (kWhat != Unwaited::read) value = x[i];
  y[i] = value + 1;
}

inline __global__ void unwaited_grid_kernel(int) {}

inline __global__ void unwaited_flags_kernel(int) {
  ptx::grid_dependency_flags();
  ptx::grid_dependency_launch();
}

template <Unwaited kWhat>
bool run_unwaited(bool broken) {
  Guarded<int> x(kUnwaitedSize, 1, "x"), y(kUnwaitedSize, -1, "y");
  const LaunchConfig config{
      .grid = kUnwaitedSize / kUnwaitedThreads, .block = kUnwaitedThreads, .overlaps_previous = true};
  if (kWhat == Unwaited::grid && broken) launch(unwaited_grid_kernel, config, nullptr, 0);
  if (kWhat == Unwaited::flags && broken) launch(unwaited_flags_kernel, config, nullptr, 0);
  launch(broken ? unwaited_kernel<kWhat> : unwaited_kernel<Unwaited::none>, config, nullptr, x.get(), y.get());
  bool right = true;
  for (int i = 0; i < kUnwaitedSize; ++i) right &= y[i] == 2;
  return right;
}

}  // namespace ladder::faults
