// Schedules: what they promise about order, and that every launch can be replayed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/backend.h"
#include "tests/simt/support.h"

namespace ladder::simt::test {
namespace {

// Every thread's rank in the order in which threads pass: `turns` times with a barrier in between.
__global__ void order_kernel(int turns, int* next, int* rank) {
  for (int turn = 0; turn < turns; ++turn) {
    rank[turn * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
    __syncthreads();
  }
}

std::vector<int> order(const std::string& schedule, int threads = 96, int turns = 3) {
  const Scoped scoped(schedule);
  std::vector<int> rank(threads * turns);
  int next = 0;
  launch(order_kernel, {1, static_cast<unsigned>(threads)}, nullptr, turns, &next, rank.data());
  return rank;
}

TEST(Schedule, ascending_and_descending_go_by_thread_index) {
  const std::vector<int> up = order("asc", 96, 1);
  const std::vector<int> down = order("desc", 96, 1);
  for (int i = 0; i < 96; ++i) {
    EXPECT_EQ(up[i], i);
    EXPECT_EQ(down[i], 95 - i);
  }
}

TEST(Schedule, seeded_ones_replay_and_differ_between_seeds) {
  for (const std::string kind : {"random:", "greedy:", "late:"}) {
    EXPECT_EQ(order(kind + "7"), order(kind + "7"));
    EXPECT_NE(order(kind + "7"), order(kind + "8"));
    EXPECT_NE(order(kind + "7"), order("asc"));
  }
  EXPECT_NE(order("random:7"), order("greedy:7"));
}

__global__ void warp_runs_kernel(int* next, int* when) {
  for (int step = 0; step < 4; ++step) {
    when[step * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
    __syncwarp();
  }
}

// Between two barriers greedy runs one warp to its end before the next one begins; random mixes them.
TEST(Schedule, greedy_runs_one_warp_ahead_of_all_others) {
  auto warps_that_interleave = [](const std::string& schedule) {
    const Scoped scoped(schedule);
    constexpr int kThreads = 256;
    std::vector<int> when(kThreads * 4);
    int next = 0;
    launch(warp_runs_kernel, {1, kThreads}, nullptr, &next, when.data());
    int interleaved = 0;
    for (int warp = 0; warp < kThreads / 32; ++warp) {
      int first = kThreads * 4;
      int last = 0;
      for (int step = 0; step < 4; ++step) {
        for (int lane = 0; lane < 32; ++lane) {
          first = std::min(first, when[step * kThreads + warp * 32 + lane]);
          last = std::max(last, when[step * kThreads + warp * 32 + lane]);
        }
      }
      interleaved += last - first != 32 * 4 - 1;
    }
    return interleaved;
  };
  for (int seed = 1; seed <= 4; ++seed) {
    EXPECT_EQ(warps_that_interleave("greedy:" + std::to_string(seed)), 0);
    EXPECT_EQ(warps_that_interleave("random:" + std::to_string(seed)), 8);
  }
}

TEST(Schedule, text_round_trips_and_nonsense_is_refused) {
  for (const std::string text : {"asc", "desc", "random:0", "random:18446744073709551615", "greedy:42", "late:3"}) {
    Options options;
    options.set_schedule(text);
    EXPECT_EQ(options.str(), text);
  }
  Options options;
  options.seed = 5;
  options.set_schedule("greedy");
  EXPECT_EQ(options.str(), "greedy:5") << "without a seed the one there was is kept";
  for (const std::string text :
       {"", "ascending", "asc:1", "random:", "random:x", "random:-1", "random:1 ", "greedy:18446744073709551616"}) {
    EXPECT_THROW(options.set_schedule(text), UsageError) << text;
    EXPECT_EQ(options.str(), "greedy:5") << "a refused text changes nothing";
  }
}

// Each block sums its own part with shared memory and barriers.
__global__ void block_sums_kernel(const int* values, int* sums) {
  LADDER_SHARED(int, part, [128]);
  part[threadIdx.x] = values[blockIdx.x * 128 + threadIdx.x];
  __syncthreads();
  for (unsigned width = 64; width > 0; width /= 2) {
    if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

TEST(Launch, any_number_of_os_threads_gives_the_same) {
  constexpr int kBlocks = 50;
  std::vector<int> values(kBlocks * 128);
  std::iota(values.begin(), values.end(), 1);
  for (const std::string& schedule : schedules(2)) {
    for (const int threads : {1, 2, 7}) {
      const Scoped scoped(schedule, threads);
      std::vector<int> sums(kBlocks, -1);
      launch(block_sums_kernel, {kBlocks, 128}, nullptr, values.data(), sums.data());
      for (int b = 0; b < kBlocks; ++b) {
        ASSERT_EQ(sums[b], 128 * 128 * b + 128 * 129 / 2) << schedule << ", " << threads << " OS threads, block " << b;
      }
    }
  }
}

__global__ void index_kernel(int* seen) {
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  atomicAdd(&seen[block * blockDim.x * blockDim.y * blockDim.z + thread], 1);
}

TEST(Launch, every_index_of_a_3d_grid_runs_once) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule, 2);
    std::vector<int> seen(3 * 4 * 2 * 5 * 7 * 3);
    launch(index_kernel, {dim3(3, 4, 2), dim3(5, 7, 3)}, nullptr, seen.data());
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), std::ssize(seen)) << schedule;
  }
}

__global__ void nothing_kernel() {}

// Thread 0 and the last thread pass a number back and forth, and sleep until it is theirs.
__global__ void sleeping_kernel(int turns, int* number) {
  const unsigned last = gridDim.x * blockDim.x - 1;
  const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread != 0 && thread != last) return;
  const int parity = thread == last;
  for (int turn = 0; turn < turns; ++turn) {
    while (atomicAdd(number, 0) % 2 != parity) __nanosleep(100);
    atomicAdd(number, 1);
  }
}

TEST(Schedule, a_thread_that_sleeps_lets_others_run) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    int number = 0;
    launch(sleeping_kernel, {1, 96}, nullptr, 5, &number);
    EXPECT_EQ(number, 10) << schedule;
    launch(sleeping_kernel, {.grid = 2, .block = 32, .cooperative = true}, nullptr, 5, &number);
    EXPECT_EQ(number, 20) << schedule;
  }
}

TEST(Launch, impossible_shapes_are_refused) {
  EXPECT_THROW(launch(nothing_kernel, {1, 1025}, nullptr), Fault);
  EXPECT_THROW(launch(nothing_kernel, {1, dim3(1, 1, 65)}, nullptr), Fault);
  EXPECT_THROW(launch(nothing_kernel, {0, 32}, nullptr), Fault);
  EXPECT_THROW(launch(nothing_kernel, {dim3(1, 65536), 32}, nullptr), Fault);
  EXPECT_THROW(launch(nothing_kernel, {1, 32, 227 * 1024 + 1}, nullptr), Fault);
  EXPECT_NO_THROW(launch(nothing_kernel, {1, 1024, 227 * 1024}, nullptr));
}

__global__ void throwing_kernel() {
  if (blockIdx.x == 5 && threadIdx.x == 3) throw Failure("from a kernel");
  __syncthreads();
}

TEST(Launch, what_a_kernel_throws_reaches_the_caller_and_the_next_launch_is_sound) {
  for (const int threads : {1, 3}) {
    const Scoped scoped("random:1", threads);
    EXPECT_THROW(launch(throwing_kernel, {20, 64}, nullptr), Failure);
    std::vector<int> values(128, 1);
    std::vector<int> sums(1);
    launch(block_sums_kernel, {1, 128}, nullptr, values.data(), sums.data());
    EXPECT_EQ(sums[0], 128);
  }
}

TEST(Backend, is_the_emulator) {
  EXPECT_EQ(backend::kind(), backend::Kind::emulator);
  EXPECT_EQ(backend::unavailable(), nullptr);
  EXPECT_EQ(backend::device().arch, 90);
  void* p = backend::allocate(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 256, 0u);
  backend::set_bytes(p, 0xff, 1000);
  unsigned char last = 0;
  backend::copy_out(&last, static_cast<unsigned char*>(p) + 999, 1);
  EXPECT_EQ(last, 0xff);
  backend::release(p);
}

}  // namespace
}  // namespace ladder::simt::test
