// Breakdown of a step's time: busy, gaps and overlaps of synthetic spans, assignment of records to replays, and a step
// on this device.
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "tests/files.h"
#include "tests/train/tiny.h"
#include "train/step_times.h"

namespace ladder::train {
namespace {

using ladder::test::has;
using ladder::test::message_of;

double sum(const std::vector<OperationTime>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0,
                         [](double all, const OperationTime& time) { return all + time.busy_us + time.gap_us; });
}

TEST(Shares, GapsBelongToTheOneAfterThem) {
  const std::vector<OperationTime> times = operation_times({{0, 5000, 7000}, {1, 8000, 11000}, {0, 11500, 12000}}, 2);
  EXPECT_EQ(times, (std::vector<OperationTime>{{.busy_us = 2.5, .gap_us = 0.5}, {.busy_us = 3, .gap_us = 1}}));
  EXPECT_DOUBLE_EQ(sum(times), 7);
}

TEST(Shares, WhatOverlapsIsCountedOnce) {
  // Operation 1 begins before 0 has ended; 2 overlaps both and adds no busy time.
  const std::vector<OperationTime> times = operation_times({{2, 1500, 1800}, {0, 1000, 2000}, {1, 1700, 4000}}, 4);
  EXPECT_EQ(times,
            (std::vector<OperationTime>{{.busy_us = 1}, {.busy_us = 2, .overlap_us = 0.3}, {.overlap_us = 0.3}, {}}));
  EXPECT_DOUBLE_EQ(sum(times), 3);
}

TEST(Shares, TheSumIsTheStepWhateverLies) {
  std::vector<Span> spans;
  std::uint64_t state = 1;
  const auto next = [&](std::int64_t most) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>(state >> 33) % most;
  };
  std::int64_t first = INT64_MAX, last = 0, all = 0;
  for (std::size_t i = 0; i < 500; ++i) {
    const std::int64_t begin = 300 * static_cast<std::int64_t>(i) + next(2000);
    const std::int64_t end = begin + next(600);
    spans.push_back({i % 7, begin, end});
    first = std::min(first, begin);
    last = std::max(last, end);
    all += end - begin;
  }
  const std::vector<OperationTime> times = operation_times(spans, 7);
  EXPECT_NEAR(sum(times), 1e-3 * static_cast<double>(last - first), 1e-6);
  double kernels = 0;
  for (const OperationTime& time : times) kernels += time.busy_us + time.overlap_us;
  EXPECT_NEAR(kernels, 1e-3 * static_cast<double>(all), 1e-6);
}

TEST(Replays, AreToldApartByTheTimesOfEachNode) {
  // Nodes 10 and 11. The second replay's node 10 begins before the first replay's node 11 has ended.
  const std::vector<NodeRecord> records = {{11, 150, 260}, {10, 250, 300}, {10, 100, 200}, {11, 310, 400}};
  const auto replays = replays_of(records, {{10, 3}, {11, 5}}, 2);
  ASSERT_EQ(replays.size(), 2u);
  EXPECT_EQ(replays[0].size(), 2u);
  EXPECT_EQ(replays[0][0].operation, 3u);
  EXPECT_EQ(replays[0][0].begin_ns, 100);
  EXPECT_EQ(replays[0][1].operation, 5u);
  EXPECT_EQ(replays[0][1].begin_ns, 150);
  EXPECT_EQ(replays[1][0].begin_ns, 250);
  EXPECT_EQ(replays[1][1].begin_ns, 310);
}

TEST(Replays, WhereRecordsAreMissingOrStrangeThereIsNoSum) {
  const std::vector<NodeRecord> lost = {{10, 100, 200}, {11, 200, 300}, {10, 300, 400}};
  EXPECT_TRUE(has(message_of<Failure>([&] { replays_of(lost, {{10, 0}, {11, 1}}, 2); }), "1 kernel records of a node"));
  EXPECT_TRUE(has(message_of<Failure>([&] { replays_of(lost, {{10, 0}}, 2); }), "node 11, of no operation"));
  const std::vector<NodeRecord> once = {{10, 100, 200}};
  EXPECT_TRUE(has(message_of<Failure>([&] { replays_of(once, {{10, 0}, {11, 1}}, 1); }), "of 1 nodes out of 2"));
}

// Time by CUPTI's records on a GPU that has CUPTI; the emulator's marks take no time.
TEST(StepTimes, EveryOperationOfAStepIsThere) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  test::Tiny net(Dtype::f32);
  net.run();
  const StepTimes times = time_step(*net.step, 2);
  std::size_t operations = 0;
  for (const Program* program : net.step->programs()) operations += program->tape().operations().size();
  ASSERT_GE(times.operations.size(), operations);
  for (std::size_t i = 0; i < operations; ++i) {
    EXPECT_EQ(times.operations[i].runs, 1);
    if (backend::kind() == backend::Kind::gpu) {
      EXPECT_GT(times.operations[i].time.busy_us + times.operations[i].time.overlap_us, 0)
          << times.operations[i].operation->name;
    }
  }
  EXPECT_TRUE(has(times.by, backend::kind() == backend::Kind::gpu ? "" : "event marks (the emulator keeps"))
      << times.by;
}

}  // namespace
}  // namespace ladder::train
