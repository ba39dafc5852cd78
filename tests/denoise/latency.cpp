// The record of how long answers took.
#include "policy/latency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "tests/denoise/tiny.h"
#include "tests/files.h"

namespace ladder::denoise {
namespace {

using nlohmann::json;

class LatencyRecord : public test::NeedsDevice {};

TEST_F(LatencyRecord, HasEveryAnswer) {
  int answers = 0;
  const Latency latency = measure_latency(
      {.count = 3}, [&] { ++answers; }, 8, 4);
  EXPECT_EQ(latency.answers_ms.size(), 3U);
  EXPECT_EQ(latency.empty_ms.size(), 3U);
  EXPECT_GT(answers, 3);  // the first ones are not counted
  for (const double ms : latency.empty_ms) EXPECT_GT(ms, 0);
}

// The clock that answers follow does not move with their lengths.
TEST_F(LatencyRecord, ControllerAsksByTheClock) {
  using Clock = std::chrono::steady_clock;
  constexpr int kCount = 6;
  constexpr double kEveryMs = 20;
  std::vector<Clock::time_point> begins;
  const auto answer = [&] {
    begins.push_back(Clock::now());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  const Latency latency = measure_latency({.count = kCount, .every_ms = kEveryMs}, answer, 8, 4);
  ASSERT_GE(begins.size(), static_cast<std::size_t>(kCount));
  const std::chrono::duration<double, std::milli> span = begins.back() - begins[begins.size() - kCount];
  EXPECT_GE(span.count(), (kCount - 2) * kEveryMs);                    // the first may be late
  EXPECT_LT(*std::ranges::min_element(latency.answers_ms), kEveryMs);  // the wait does not count
}

// 201 answers in no order, of 1 to 201 ms: 100 of them are faster than the median, 2 slower than the 99th percentile.
TEST(LatencySummary, IsOfTheSortedAnswers) {
  std::vector<double> ms;
  for (int i = 0; i < 201; ++i) ms.push_back(1 + 77 * i % 201);
  EXPECT_EQ(summary(ms), "median 101 ms, p99 199, worst 201");
  EXPECT_EQ(summary({2.5}), "median 2.5 ms, p99 2.5, worst 2.5");
}

TEST_F(LatencyRecord, IsWrittenAsideAndRenamed) {
  const ladder::test::Scratch scratch;
  const std::filesystem::path file = scratch / "latency.json", other_name = scratch / "before.json";
  ladder::test::put(file, "before");
  std::filesystem::create_hard_link(file, other_name);
  write_latency(file, {{"step", "a step is one kernel"}}, {.answers_ms = {1, 2}, .empty_ms = {0.5, 0.25}});
  const json record = json::parse(ladder::test::contents(file));
  EXPECT_EQ(record["schema"], "ladder.policy_latency/1");
  EXPECT_EQ(record["policy"]["step"], "a step is one kernel");
  EXPECT_EQ(record["answers_ms"], json({1, 2}));
  EXPECT_EQ(record["empty_graph_ms"], json({0.5, 0.25}));
  EXPECT_EQ(ladder::test::contents(other_name), "before");  // another file took the name
  EXPECT_EQ(ladder::test::count_in(scratch.path()), 2);
  EXPECT_THROW(write_latency(scratch / "no" / "latency.json", {}, {}), std::exception);
}

}  // namespace
}  // namespace ladder::denoise
