// Launches that overlap the one in front: who may touch device memory when.
#include "dev/ptx/grid_dependency.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/backend.h"
#include "tests/simt/support.h"

namespace ladder::simt::test {
namespace {

// A thread waits before its block does, and the others behind a barrier.
__global__ void increment_kernel(int* values) {
  LADDER_SHARED(int, ready, );
  if (threadIdx.x == 0) {
    ptx::grid_dependency_wait();
    ready = 1;
  }
  __syncthreads();
  ptx::grid_dependency_wait();
  values[blockIdx.x * blockDim.x + threadIdx.x] += ready;
}

TEST(GridDependency, memory_is_closed_to_who_did_not_wait_and_to_nobody_else) {
  constexpr int kBlocks = 3, kThreads = 64, kLaunches = 50;
  auto* const values = static_cast<int*>(backend::allocate(kBlocks * kThreads * sizeof(int) + sizeof(int)));
  for (int i = 0; i <= kBlocks * kThreads; ++i) values[i] = 0;
  std::atomic<bool> over = false;
  std::jthread other([&] {
    while (!over) ++std::atomic_ref(values[kBlocks * kThreads]);
  });
  for (const std::string& schedule : schedules(1)) {
    const Scoped scoped(schedule);
    for (int i = 0; i < kLaunches; ++i) {
      launch(increment_kernel, {.grid = kBlocks, .block = kThreads, .overlaps_previous = true}, nullptr, values);
    }
  }
  over = true;
  other.join();
  const int expected = static_cast<int>(schedules(1).size()) * kLaunches;
  for (int i = 0; i < kBlocks * kThreads; ++i) EXPECT_EQ(values[i], expected);
  EXPECT_GT(values[kBlocks * kThreads], 0);
  backend::release(values);
}

}  // namespace
}  // namespace ladder::simt::test
