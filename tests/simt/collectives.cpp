// Barriers, shuffles, votes, matches and atomics; and the reports about threads that do not take part.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/simt/support.h"

namespace ladder::simt::test {
namespace {

// --- Shuffles, against the formulas of the CUDA programming guide

template <class T>
__global__ void shuffle_kernel(const T* in, T* out, int argument, int width) {
  const T value = in[threadIdx.x];
  out[threadIdx.x] = __shfl_sync(~0u, value, argument + threadIdx.x, width);
  out[32 + threadIdx.x] = __shfl_up_sync(~0u, value, argument, width);
  out[64 + threadIdx.x] = __shfl_down_sync(~0u, value, argument, width);
  out[96 + threadIdx.x] = __shfl_xor_sync(~0u, value, argument, width);
}

template <class T>
class Shuffle : public testing::Test {};
using Types = testing::Types<int, unsigned, float, double, long long, unsigned long long>;
TYPED_TEST_SUITE(Shuffle, Types);

TYPED_TEST(Shuffle, moves_lanes_as_documented) {
  std::vector<TypeParam> in(32);
  for (int i = 0; i < 32; ++i) in[i] = static_cast<TypeParam>(1000000007.0 / (i + 1));
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    for (int width = 1; width <= 32; width *= 2) {
      for (const int argument : {0, 1, 2, 3, 5, 8, 15, 16, 17, 31}) {
        std::vector<TypeParam> out(128);
        launch(shuffle_kernel<TypeParam>, {1, 32}, nullptr, in.data(), out.data(), argument, width);
        for (int lane = 0; lane < 32; ++lane) {
          const int segment = lane / width * width;
          const int end = segment + width;
          const int by_index = segment + (argument + lane) % width;
          const int up = lane - argument < segment ? lane : lane - argument;
          const int down = lane + argument >= end ? lane : lane + argument;
          const int by_xor = (lane ^ argument) >= end ? lane : lane ^ argument;
          ASSERT_EQ(out[lane], in[by_index]);
          ASSERT_EQ(out[32 + lane], in[up]);
          ASSERT_EQ(out[64 + lane], in[down]);
          ASSERT_EQ(out[96 + lane], in[by_xor]) << "lane " << lane << " argument " << argument << " width " << width;
        }
      }
    }
  }
}

__global__ void shuffle_16_bit_kernel(float* out) {
  const int lane = threadIdx.x;
  out[lane] = __bfloat162float(__shfl_xor_sync(~0u, __float2bfloat16(static_cast<float>(lane)), 1));
  out[32 + lane] = __half2float(__shfl_down_sync(~0u, __float2half(static_cast<float>(lane)), 16));
  out[64 + lane] = __half22float2(__shfl_sync(~0u, __floats2half2_rn(lane, lane + 0.5f), 3)).y;
}

TEST(Shuffle16, moves_bf16_and_fp16) {
  std::vector<float> out(96);
  launch(shuffle_16_bit_kernel, {1, 32}, nullptr, out.data());
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane], lane ^ 1);
    EXPECT_EQ(out[32 + lane], lane < 16 ? lane + 16 : lane);
    EXPECT_EQ(out[64 + lane], 3.5f);
  }
}

// Halves of a warp in different collectives at the same time, and quarters with changing members.
__global__ void partial_masks_kernel(int* out) {
  const int lane = threadIdx.x;
  int value = lane;
  if (lane < 16) {
    for (int width = 8; width > 0; width /= 2) value += __shfl_xor_sync(0x0000ffffu, value, width);
  } else {
    value = __popc(__ballot_sync(0xffff0000u, lane % 4 == 0));
    value += 10 * __all_sync(0xffff0000u, lane >= 16) + 100 * __any_sync(0xffff0000u, lane < 16);
  }
  __syncwarp();
  const unsigned odd_or_even = lane % 2 ? 0xaaaaaaaau : 0x55555555u;
  out[lane] = value;
  out[32 + lane] = __shfl_sync(odd_or_even, lane, lane % 2);
}

TEST(Collective, masks_may_split_a_warp) {
  for (const std::string& schedule : schedules(4)) {
    const Scoped scoped(schedule);
    std::vector<int> out(64);
    launch(partial_masks_kernel, {1, 32}, nullptr, out.data());
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(out[lane], lane < 16 ? 120 : 14) << schedule;
      EXPECT_EQ(out[32 + lane], lane % 2) << schedule;
    }
  }
}

// Reductions over each half of the warp. Lanes 16 to 31 hold values that are negative as int.
__global__ void reductions_kernel(unsigned* out) {
  const unsigned lane = threadIdx.x;
  const unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  unsigned* mine = out + 7 * lane;
  mine[0] = __reduce_add_sync(half, lane);
  mine[1] = __reduce_min_sync(half, lane);
  mine[2] = __reduce_max_sync(half, lane);
  mine[3] = static_cast<unsigned>(__reduce_min_sync(half, static_cast<int>(lane) - 20));
  mine[4] = __reduce_and_sync(half, lane);
  mine[5] = __reduce_or_sync(half, lane);
  mine[6] = __reduce_xor_sync(half, lane == 3 ? 5u : 0u);
}

TEST(Collective, reductions_are_of_the_lanes_named) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    std::vector<unsigned> out(32 * 7);
    launch(reductions_kernel, {1, 32}, nullptr, out.data());
    const std::vector<unsigned> low = {120, 0, 15, static_cast<unsigned>(-20), 0, 15, 5};
    const std::vector<unsigned> high = {376, 16, 31, static_cast<unsigned>(-4), 16, 31, 0};
    for (int lane = 0; lane < 32; ++lane) {
      const std::vector<unsigned> mine(out.begin() + 7 * lane, out.begin() + 7 * lane + 7);
      EXPECT_EQ(mine, lane < 16 ? low : high) << schedule << ", lane " << lane;
    }
  }
}

__global__ void asserts_kernel(const int* in) { assert(in[threadIdx.x] >= 0); }
__global__ void assumes_kernel(const int* in) { __builtin_assume(in[threadIdx.x] >= 0); }

TEST(Assert, names_its_condition_and_line) {
  for (const auto kernel : {asserts_kernel, assumes_kernel}) {
    std::vector<int> in(32, 1);
    launch(kernel, {1, 32}, nullptr, static_cast<const int*>(in.data()));
    in[7] = -1;
    const std::string report = fault_of([&] { launch(kernel, {1, 32}, nullptr, in.data()); });
    EXPECT_NE(report.find("tests/simt/collectives.cpp:"), std::string::npos) << report;
    EXPECT_NE(report.find("thread (7,0,0)"), std::string::npos) << report;
  }
}

__global__ void votes_kernel(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  unsigned* mine = out + 8 * threadIdx.x;
  mine[7] = __activemask();
  mine[0] = __ballot_sync(~0u, lane % 3 == 0);
  mine[1] = __any_sync(~0u, lane == 40);
  mine[2] = __all_sync(~0u, lane < 32);
  mine[3] = __match_any_sync(~0u, static_cast<int>(lane % 5));
  int same = -1;
  mine[4] = __match_all_sync(~0u, 3.5f, &same);
  mine[5] = same;
  mine[6] = __match_all_sync(~0u, lane / 31, &same) + same;
}

// The block's last warp has 8 lanes: a mask that names missing lanes means the existing ones.
TEST(Collective, votes_and_matches) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    constexpr int kThreads = 40;
    std::vector<unsigned> out(kThreads * 8);
    launch(votes_kernel, {1, kThreads}, nullptr, out.data());
    for (int i = 0; i < kThreads; ++i) {
      const unsigned lanes = i < 32 ? ~0u : 0xffu;
      unsigned thirds = 0, fifths = 0;
      for (int lane = 0; lane < 32; ++lane) {
        if (lane % 3 == 0) thirds |= 1u << lane;
        if (lane % 5 == i % 32 % 5) fifths |= 1u << lane;
      }
      const unsigned* mine = &out[8 * i];
      EXPECT_EQ(mine[0], thirds & lanes);
      EXPECT_EQ(mine[1], 0u);
      EXPECT_EQ(mine[2], 1u);
      EXPECT_EQ(mine[3], fifths & lanes);
      EXPECT_EQ(mine[4], lanes);
      EXPECT_EQ(mine[5], 1u);
      EXPECT_EQ(mine[6], i < 32 ? 0u : lanes + 1) << "lane 31 differs, and the last warp has none";
      EXPECT_EQ(mine[7], lanes);
    }
  }
}

__global__ void reducing_barriers_kernel(int* out) {
  const int i = threadIdx.x;
  for (int turn = 0; turn < 5; ++turn) {
    out[(0 + 3 * turn) * blockDim.x + i] = __syncthreads_count(i % (turn + 2) == 0);
    out[(1 + 3 * turn) * blockDim.x + i] = __syncthreads_and(i >= turn);
    out[(2 + 3 * turn) * blockDim.x + i] = __syncthreads_or(i == 100 * turn);
  }
}

TEST(Barrier, reductions) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    constexpr int kThreads = 150;
    std::vector<int> out(15 * kThreads);
    launch(reducing_barriers_kernel, {1, kThreads}, nullptr, out.data());
    for (int turn = 0; turn < 5; ++turn) {
      for (int i = 0; i < kThreads; ++i) {
        EXPECT_EQ(out[(0 + 3 * turn) * kThreads + i], (kThreads + turn + 1) / (turn + 2));
        EXPECT_EQ(out[(1 + 3 * turn) * kThreads + i] != 0, turn == 0);
        EXPECT_EQ(out[(2 + 3 * turn) * kThreads + i] != 0, turn < 2);
      }
    }
  }
}

// --- Atomics

__global__ void atomics_kernel(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&i[0], n);
  atomicSub(&i[1], n);
  atomicMax(&i[2], n % 777);
  atomicMin(&i[3], -n);
  atomicOr(&u[0], 1u << n % 32);
  atomicAnd(&u[1], ~(1u << n % 16));
  atomicXor(&u[2], 1u << n % 7);
  atomicInc(&u[3], 9);
  atomicAdd(l, 1ull << 33);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  if (atomicExch(&i[4], 1) == 0) atomicAdd(&i[5], 1);
  int seen = atomicAdd(&i[6], 0);
  for (int expected = seen + 1; expected != seen;) {
    expected = seen;
    seen = atomicCAS(&i[6], expected, expected + 3);
  }
}

TEST(Atomics, are_atomic_across_os_threads) {
  const Scoped scoped("random:3", 4);
  constexpr int kBlocks = 64, kThreads = 64, kAll = kBlocks * kThreads;
  std::vector<int> i(7);
  std::vector<unsigned> u = {0, ~0u, 0, 0};
  unsigned long long l = 0;
  float f = 0;
  double d = 0;
  launch(atomics_kernel, {kBlocks, kThreads}, nullptr, i.data(), u.data(), &l, &f, &d);
  EXPECT_EQ(i[0], kAll * (kAll - 1) / 2);
  EXPECT_EQ(i[1], -i[0]);
  EXPECT_EQ(i[2], 776);
  EXPECT_EQ(i[3], 1 - kAll);
  EXPECT_EQ(u[0], ~0u);
  EXPECT_EQ(u[1], 0xffff0000u);
  unsigned parity = 0;
  for (int n = 0; n < kAll; ++n) parity ^= 1u << n % 7;
  EXPECT_EQ(u[2], parity);
  EXPECT_EQ(u[3], static_cast<unsigned>(kAll % 10));
  EXPECT_EQ(l, static_cast<unsigned long long>(kAll) << 33);
  EXPECT_EQ(f, kAll * 0.5f);
  EXPECT_EQ(d, kAll * 0.25);
  EXPECT_EQ(i[5], 1);
  EXPECT_EQ(i[6], kAll * 3);
}

// --- Reports. The macro records the line that the report must name.

#define NOTED(line) line = __LINE__;

std::atomic<int> line_a = 0;
std::atomic<int> line_b = 0;

testing::AssertionResult names(const std::string& report, int line) {
  const std::string location = "collectives.cpp:" + std::to_string(line);
  if (report.find(location) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << report << "' does not name " << location;
}

testing::AssertionResult says(const std::string& report, const std::string& words) {
  if (report.find(words) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << report << "' does not say '" << words << "'";
}

__global__ void divergent_barrier_kernel() {
  if (threadIdx.x < 32) {
    NOTED(line_a) __syncthreads();
  } else {
    NOTED(line_b) __syncthreads();
  }
}

TEST(Report, divergent_barrier_names_both_lines) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    const std::string report = fault_of([] { launch(divergent_barrier_kernel, {dim3(1, 2), 64}, nullptr); });
    EXPECT_TRUE(says(report, "divergent barrier"));
    EXPECT_TRUE(names(report, line_a));
    EXPECT_TRUE(names(report, line_b));
    EXPECT_TRUE(says(report, "[schedule " + schedule + "]"));
  }
}

__global__ void early_exit_kernel() {
  if (threadIdx.x == 37) return;
  NOTED(line_a) __syncthreads();
}

TEST(Report, exit_before_a_barrier) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    const std::string report = fault_of([] { launch(early_exit_kernel, {1, 64}, nullptr); });
    EXPECT_TRUE(says(report, "ended")) << schedule;
    EXPECT_TRUE(names(report, line_a));
  }
}

__global__ void absent_lanes_kernel(int* out) {
  if (threadIdx.x < 16) {
    NOTED(line_a) out[threadIdx.x] = __shfl_xor_sync(~0u, 1, 8);
  } else {
    NOTED(line_b) __syncthreads();
  }
}

TEST(Report, mask_that_names_absent_lanes_is_a_deadlock_with_both_places) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    std::vector<int> out(32);
    const std::string report = fault_of([&] { launch(absent_lanes_kernel, {1, 32}, nullptr, out.data()); });
    EXPECT_TRUE(says(report, "deadlock"));
    EXPECT_TRUE(says(report, "__shfl_xor_sync with mask 0xffffffff"));
    EXPECT_TRUE(names(report, line_a));
    EXPECT_TRUE(names(report, line_b));
  }
}

__global__ void ended_lane_kernel() {
  if (threadIdx.x == 4) return;
  __syncwarp(~0x10u);
  NOTED(line_a) __syncwarp();
}

TEST(Report, mask_that_names_a_lane_that_has_ended) {
  const Scoped scoped("asc");
  const std::string report = fault_of([] { launch(ended_lane_kernel, {1, 32}, nullptr); });
  EXPECT_TRUE(names(report, line_a));
  EXPECT_TRUE(says(report, "__syncwarp"));
}

__global__ void foreign_mask_kernel() { NOTED(line_a) __ballot_sync(0xffu, 1); }

TEST(Report, mask_without_the_caller) {
  const Scoped scoped("desc");
  const std::string report = fault_of([] { launch(foreign_mask_kernel, {1, 32}, nullptr); });
  EXPECT_TRUE(says(report, "does not name the calling lane"));
  EXPECT_TRUE(says(report, "thread (31,0,0) of block (0,0,0)"));
  EXPECT_TRUE(names(report, line_a));
}

__global__ void mixed_collectives_kernel(int* out) {
  if (threadIdx.x % 2) {
    NOTED(line_a) out[threadIdx.x] = __any_sync(~0u, 1);
  } else {
    NOTED(line_b) out[threadIdx.x] = __all_sync(~0u, 1);
  }
}

TEST(Report, different_collectives_with_one_mask) {
  const Scoped scoped("random:1");
  std::vector<int> out(32);
  const std::string report = fault_of([&] { launch(mixed_collectives_kernel, {1, 32}, nullptr, out.data()); });
  EXPECT_TRUE(says(report, "deadlock"));
  EXPECT_TRUE(names(report, line_a));
  EXPECT_TRUE(names(report, line_b));
}

__global__ void stray_source_kernel(int* out) {
  if (threadIdx.x < 8) {
    NOTED(line_a) out[threadIdx.x] = __shfl_sync(0xffu, 1, 9);
  }
}

TEST(Report, shuffle_from_a_lane_outside_the_mask) {
  std::vector<int> out(32);
  const std::string report = fault_of([&] { launch(stray_source_kernel, {1, 32}, nullptr, out.data()); });
  EXPECT_TRUE(says(report, "takes no part"));
  EXPECT_TRUE(names(report, line_a));
}

__global__ void trap_kernel() { NOTED(line_a) if (threadIdx.x == 1) __trap(); }

TEST(Report, trap) {
  const std::string report = fault_of([] { launch(trap_kernel, {1, 2}, nullptr); });
  EXPECT_TRUE(names(report, line_a));
}

TEST(Report, collective_outside_a_kernel) {
  EXPECT_TRUE(says(fault_of([] { __syncthreads(); }), "outside a kernel"));
}

}  // namespace
}  // namespace ladder::simt::test
