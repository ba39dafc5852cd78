// Cooperative grids: all blocks run together and wait for each other, and what is refused.
#include <gtest/gtest.h>

#include <numeric>

#include "core/graph.h"
#include "dev/ptx/cluster.h"
#include "dev/ptx/grid_barrier.h"
#include "tests/simt/support.h"

namespace ladder::simt::test {
namespace {

constexpr int kPhases = 5;
constexpr LaunchConfig kGrid{.grid = 4, .block = 48, .cooperative = true};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// In every phase a block's last thread writes, and after the barrier its first one adds up what all blocks wrote.
__global__ void exchange_kernel(int* slots, int* sums, unsigned* counter) {
  ptx::GridBarrier barrier(counter);
  for (int phase = 0; phase < kPhases; ++phase) {
    if (threadIdx.x == blockDim.x - 1) slots[blockIdx.x] = 10 * phase + static_cast<int>(blockIdx.x);
    barrier.arrive();
    barrier.wait();
    if (threadIdx.x == 0) {
      int sum = 0;
      for (unsigned b = 0; b < gridDim.x; ++b) sum += slots[b];
      sums[phase * gridDim.x + blockIdx.x] = sum;
    }
    barrier.sync();  // before the next phase overwrites
  }
}

TEST(GridBarrier, every_block_sees_what_all_blocks_wrote) {
  for (const std::string& schedule : schedules(4)) {
    const Scoped scoped(schedule, 2);
    std::vector<int> slots(4, -1), sums(4 * kPhases, -1);
    unsigned counter = 0;
    launch(exchange_kernel, kGrid, nullptr, slots.data(), sums.data(), &counter);
    for (int i = 0; i < 4 * kPhases; ++i) EXPECT_EQ(sums[i], 4 * 10 * (i / 4) + 6) << schedule << ' ' << i;
    EXPECT_EQ(counter, 4u * 2 * kPhases);
  }
}

TEST(GridBarrier, a_captured_launch_clears_its_counter_each_time) {
  std::vector<int> slots(4, -1), sums(4 * kPhases, -1);
  auto* const counter = static_cast<unsigned*>(backend::allocate(sizeof(unsigned)));
  const BoundLaunch exchange = bind_launch(exchange_kernel, kGrid, slots.data(), sums.data(), counter);
  const Graph graph = Graph::capture([&](Stream stream) {
    set_bytes_async(counter, 0, sizeof(unsigned), stream);
    exchange(stream);
  });
  const OwnedStream stream;
  for (int i = 0; i < 3; ++i) graph.replay(stream);
  stream.synchronize();
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0), 4 * (10 * 4 * 10 + kPhases * 6));
  backend::release(counter);
}

TEST(GridBarrier, grids_that_cannot_run_as_a_whole_are_refused) {
  const auto refusal = [](LaunchConfig config) -> std::string {
    try {
      (void)bind_launch(exchange_kernel, config, nullptr, nullptr, nullptr);
    } catch (const Failure& failure) {
      return failure.what();
    }
    return "none";
  };
  EXPECT_TRUE(contains(refusal({.grid = 5, .block = 32, .cooperative = true}),
                       "a cooperative grid of 5 blocks; this card runs 4 of them at a time"));
  EXPECT_TRUE(contains(refusal({.grid = 4, .block = 32, .cluster = 2, .cooperative = true}), "in clusters"));
  EXPECT_EQ(refusal({.grid = dim3(2, 2), .block = 32, .cooperative = true}), "none");
  EXPECT_EQ(refusal({.grid = 5, .block = 32}), "none");
}

__global__ void ranks_kernel(int* ranks) {
  if (threadIdx.x == 0) ranks[blockIdx.x] = static_cast<int>(10 * ptx::cluster_rank() + ptx::cluster_size());
}

__global__ void cluster_barrier_kernel() { ptx::cluster_sync(); }

TEST(GridBarrier, a_cooperative_grid_is_no_cluster) {
  std::vector<int> ranks(4, -1);
  launch(ranks_kernel, kGrid, nullptr, ranks.data());
  EXPECT_EQ(ranks, std::vector<int>(4, 1));
  EXPECT_TRUE(contains(fault_of([] { launch(cluster_barrier_kernel, kGrid, nullptr); }),
                       "barrier.cluster: a cooperative grid has no clusters"));
}

__global__ void leaving_kernel(unsigned* counter) {
  if (blockIdx.x == 2) return;
  ptx::GridBarrier(counter).sync();
}

TEST(GridBarrier, faults_name_what_is_wrong) {
  std::vector<int> slots(4), sums(4 * kPhases);
  unsigned counter = 0;
  const auto report = [&](const LaunchConfig& config, unsigned before) {
    counter = before;
    return fault_of([&] { launch(exchange_kernel, config, nullptr, slots.data(), sums.data(), &counter); });
  };
  EXPECT_TRUE(contains(report({.grid = 4, .block = 48}, 0), "the grid is not cooperative"));
  EXPECT_TRUE(contains(report(kGrid, 0xffffffffu), "the counter holds 4294967295 where 0 blocks have arrived"));
  counter = 0;
  const std::string deadlock = fault_of([&] { launch(leaving_kernel, kGrid, nullptr, &counter); });
  EXPECT_TRUE(contains(deadlock, "a grid barrier") && contains(deadlock, "3 of the grid's 4 blocks have arrived"))
      << deadlock;
}

}  // namespace
}  // namespace ladder::simt::test
