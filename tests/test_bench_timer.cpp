// The timer and its statistics. What needs no GPU is checked everywhere.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/roofline.h"
#include "bench/statistics.h"
#include "bench/timer.h"
#include "bench/untrusted/times.h"
#include "core/backend.h"
#include "core/error.h"
#include "dev/conv3x3/conv3x3.h"
#include "tests/support.h"

namespace ladder {
namespace {

TEST(Statistics, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
  EXPECT_THROW(median({}), Failure);
}

// Every outcome of n fair coins, "this sample lies below the true median", counted one by one.
double coverage_by_counting(int n, int l) {
  std::uint32_t covered = 0;
  for (std::uint32_t outcome = 0; outcome < (1u << n); ++outcome) {
    const int below = std::popcount(outcome);
    covered += below >= l && below <= n - l;
  }
  return static_cast<double>(covered) / (1u << n);
}

TEST(Statistics, MedianIntervalIsTheNarrowestThatCovers) {
  for (int n = 1; n <= 18; ++n) {
    std::vector<double> samples;
    for (int i = 1; i <= n; ++i) samples.push_back(i * i);  // their mean is not their median
    std::mt19937_64 random(test::seed());
    std::shuffle(samples.begin(), samples.end(), random);
    int l = 1;
    while (2 * (l + 1) <= n && coverage_by_counting(n, l + 1) >= 0.95) ++l;
    const MedianInterval interval = median_interval(samples);
    EXPECT_EQ(interval.low, l * l) << n << " samples";
    EXPECT_EQ(interval.high, (n + 1 - l) * (n + 1 - l)) << n << " samples";
    EXPECT_NEAR(interval.coverage, coverage_by_counting(n, l), 1e-9) << n << " samples";
    EXPECT_EQ(interval.median, median(samples)) << n << " samples";
  }
}

TEST(Statistics, MedianIntervalOfManySamplesIsFinite) {
  std::vector<double> samples;
  for (int i = 0; i < 20000; ++i) samples.push_back(i);
  const MedianInterval interval = median_interval(samples);
  // Normal approximation: 1.96 sqrt(n) / 2 ranks to either side.
  EXPECT_NEAR(interval.high - interval.low, 1.96 * std::sqrt(20000.0), 5);
  EXPECT_GE(interval.coverage, 0.95);
}

Calibration good() {
  Calibration c;
  c.spins = {{5e-6, 5.4e-6}, {50e-6, 50.9e-6}, {500e-6, 505e-6}};
  c.empty = {.seconds = 2e-6, .stamp_seconds = 5e-6, .wall_seconds = 20e-6, .sm_clock_hz = 1e9};
  c.copy_bytes_per_s = 4e12;
  return c;
}

TEST(Trust, ACalibrationIsBelievedWithinAMicrosecondAndAPercent) {
  EXPECT_EQ(fault_of(good(), 4.8e12), "");
  EXPECT_EQ(fault_of(good(), 0), "");
  Calibration slow = good();
  slow.spins[0].seconds = 6.2e-6;
  EXPECT_NE(fault_of(slow, 0), "");
  Calibration stretched = good();
  stretched.spins[2].seconds = 507e-6;
  EXPECT_NE(fault_of(stretched, 0), "");
  Calibration broken = good();
  broken.spins[1].seconds = std::nan("");
  EXPECT_NE(fault_of(broken, 0), "");
  EXPECT_NE(fault_of(good(), 3.9e12), "") << "a copy cannot be faster than the memory";
}

TEST(Trust, ClocksThatDisagreeAreNamed) {
  const Sample empty = good().empty;
  EXPECT_EQ(disagreement(empty, {.seconds = 102e-6, .stamp_seconds = 106e-6, .wall_seconds = 130e-6}), "");
  EXPECT_EQ(disagreement(empty, {.seconds = 102e-6, .stamp_seconds = 106e-6, .wall_seconds = 0}), "");
  EXPECT_NE(
      disagreement(empty, {.seconds = 3e-6, .stamp_seconds = 106e-6, .wall_seconds = 130e-6}).find("global timer"),
      std::string::npos);
  // Work on another stream: the events close at once, the device goes on.
  EXPECT_NE(disagreement(empty, {.seconds = 3e-6, .stamp_seconds = 6e-6, .wall_seconds = 130e-6}).find("busy"),
            std::string::npos);
}

// A sample whose span is that of an empty one and `launches` of `seconds` more, by each clock.
Sample sample_of(int launches, double events, double stamps, double wall) {
  const Sample empty = good().empty;
  return {.seconds = (empty.seconds + launches * events) / launches,
          .stamp_seconds = (empty.stamp_seconds + launches * stamps) / launches,
          .wall_seconds = (empty.wall_seconds + launches * wall) / launches,
          .launches = launches};
}

TEST(Trust, AShortLaunchIsNoDisagreement) {
  const Sample empty = good().empty;
  for (const int launches : {1, 20, 100}) {
    for (const double seconds : {0.0, 0.3e-6, 1e-6, 5e-6}) {
      EXPECT_EQ(disagreement(empty, sample_of(launches, seconds, seconds, seconds)), "")
          << launches << " x " << seconds;
    }
  }
  // Both clocks' ticks, of the sample and of the empty kernel.
  EXPECT_EQ(disagreement(empty, sample_of(1, 1e-6, 3.9e-6, 1e-6)), "");
  EXPECT_EQ(disagreement(empty, sample_of(1, 1e-6, -1.9e-6, 1e-6)), "");
  EXPECT_NE(disagreement(empty, sample_of(1, 1e-6, 4.2e-6, 1e-6)), "");
}

TEST(Trust, ALaunchOfManyThatTheEventsDoNotSeeIsNoticed) {
  const Sample empty = good().empty;
  // 1 us that the events have as 0.9 us, in a span of 100 us; then on another stream.
  EXPECT_NE(disagreement(empty, sample_of(100, 0.9e-6, 1e-6, 1e-6)).find("global timer"), std::string::npos);
  EXPECT_NE(disagreement(empty, sample_of(100, 0.5e-6, 0.5e-6, 1e-6)).find("busy"), std::string::npos);
}

TEST(Trust, TheMedianSampleIsFigureByFigure) {
  const Sample typical = median_sample({{.seconds = 1, .stamp_seconds = 5, .launches = 7},
                                        {.seconds = 2, .stamp_seconds = 4, .wall_seconds = 8, .launches = 7},
                                        {.seconds = 9, .stamp_seconds = 3, .launches = 7}});
  EXPECT_EQ(typical.launches, 7);
  EXPECT_EQ(typical.seconds, 2);
  EXPECT_EQ(typical.stamp_seconds, 4);
  EXPECT_EQ(typical.wall_seconds, 8) << "0 is unknown";
  EXPECT_EQ(typical.sm_clock_hz, 0);
}

TEST(Trust, AWarmSampleOfACandidateLasts100Microseconds) {
  EXPECT_EQ(warm_launches(0.3e-6), 100);
  EXPECT_EQ(warm_launches(3e-6), 33);
  EXPECT_EQ(warm_launches(6e-6), 20);
  EXPECT_EQ(warm_launches(1), 20);
  for (const double nonsense : {0.0, -1.0, std::nan(""), 1e-300}) {
    EXPECT_GE(warm_launches(nonsense), 20);
    EXPECT_LE(warm_launches(nonsense), 100);
  }
}

TEST(Roofline, FollowsTheWhitepapers) {
  backend::DeviceInfo h100{.arch = 90, .num_sms = 132, .sm_clock_khz = 1'830'000, .dram_bytes_per_s = 3.35e12};
  // H100 SXM: 989 dense bf16, 495 tf32, 67 fp32 TFLOP/s at its boost clock (NVIDIA's data sheet).
  EXPECT_NEAR(peak_flops(h100, Dtype::bf16), 989e12, 5e12);
  EXPECT_NEAR(peak_flops(h100, Dtype::tf32), 495e12, 3e12);
  EXPECT_NEAR(peak_flops(h100, Dtype::f32), 67e12, 6e12);
  backend::DeviceInfo a100{.arch = 80, .num_sms = 108, .sm_clock_khz = 1'410'000};
  EXPECT_NEAR(peak_flops(a100, Dtype::f16), 312e12, 1e12);
  EXPECT_NEAR(peak_flops(a100, Dtype::f32), 19.5e12, 0.1e12);

  const Case compute = pass_of<conv3x3::Fprop>().parse("n32 h64 w64 c64 k64 fp32");
  EXPECT_DOUBLE_EQ(cold_lower_bound_seconds(h100, compute), compute.flops / peak_flops(h100, Dtype::f32));
  const Case memory = pass_of<conv3x3::Fprop>().parse("n32 h64 w64 c64 k1 bf16");
  EXPECT_DOUBLE_EQ(cold_lower_bound_seconds(h100, memory), memory.traffic.read_bytes / h100.dram_bytes_per_s);
  EXPECT_LT(warm_lower_bound_seconds(h100, memory), cold_lower_bound_seconds(h100, memory));

  h100.arch = 999;
  EXPECT_EQ(warm_lower_bound_seconds(h100, compute), 0) << "an unknown architecture has no arithmetic lower bound";
}

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* reason = Timer::unavailable()) GTEST_SKIP() << reason;
  }
};

struct Buffers {
  explicit Buffers(std::size_t bytes) : bytes(bytes), from(backend::allocate(bytes)), to(backend::allocate(bytes)) {
    backend::set_bytes(from, 1, bytes);
  }
  ~Buffers() {
    backend::release(to);
    backend::release(from);
  }
  Work copy() const { return Timer::copy(to, from, bytes); }
  std::size_t bytes;
  void* from;
  void* to;
};

TEST_F(OnGpu, TheTimerReadsKnownDurations) {
  Timer timer;
  const Calibration& c = timer.calibration();
  EXPECT_EQ(c.failure, "");
  ASSERT_EQ(c.spins.size(), 3u);
  EXPECT_NEAR(c.spins[2].expected_seconds, 500e-6, 5e-6);
  EXPECT_GT(c.copy_bytes_per_s, 0.3 * backend::device().dram_bytes_per_s);
  EXPECT_LT(c.empty.seconds, 10e-6);
  EXPECT_GT(c.sm_clock_hz, 0.3e3 * backend::device().sm_clock_khz);
  EXPECT_LT(c.sm_clock_hz, 1.1e3 * backend::device().sm_clock_khz);
}

TEST_F(OnGpu, AColdCacheIsSlowerThanAWarmOne) {
  Timer timer;
  const Buffers buffers(backend::device().l2_bytes / 8);
  timer.run(buffers.copy());
  std::vector<double> cold, warm;
  for (int i = 0; i < 9; ++i) {
    cold.push_back(timer.cold(buffers.copy()).seconds);
    warm.push_back(timer.warm(buffers.copy(), 20).seconds);
  }
  EXPECT_GT(median(cold), 1.1 * median(warm));
}

TEST_F(OnGpu, AMoveWritesItsBytesAndNoOthers) {
  Timer timer;
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const Buffers buffers(kMiB + 4096);
  for (const auto& [write_bytes, read_bytes] : std::vector<std::pair<std::size_t, std::size_t>>{
           {kMiB, kMiB}, {kMiB / 2 + 48, kMiB + 16}, {kMiB + 32, 64}, {64, kMiB}, {16, 16}, {17, 0}, {0, 64}}) {
    backend::set_bytes(buffers.to, 0xFF, buffers.bytes);  // the source holds ones, of which no xor makes this
    timer.run(Timer::streaming_kernel(buffers.to, write_bytes, buffers.from, read_bytes));
    std::vector<unsigned char> found(buffers.bytes);
    backend::copy_out(found.data(), buffers.to, found.size());
    const std::size_t end = (write_bytes + 15) / 16 * 16;
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i] != 0xFF, i < end) << "byte " << i << " of " << write_bytes << " from " << read_bytes;
    }
  }
}

TEST_F(OnGpu, AMoveReadsWhatItDoesNotWrite) {
  Timer timer;
  const Buffers buffers(std::size_t{256} << 20);
  for (const std::size_t write_bytes : {std::size_t{0}, buffers.bytes / 2, buffers.bytes}) {
    const Work move = Timer::streaming_kernel(buffers.to, write_bytes, buffers.from, buffers.bytes);
    timer.run(move);
    const double bytes_per_s = static_cast<double>(buffers.bytes + write_bytes) / timer.cold(move).seconds;
    EXPECT_LT(bytes_per_s, backend::device().dram_bytes_per_s) << write_bytes << " written";
    EXPECT_GT(bytes_per_s, 0.8 * timer.calibration().copy_bytes_per_s) << write_bytes << " written";
  }
}

TEST_F(OnGpu, AnHonestCopyHasClocksThatAgree) {
  Timer timer;
  const Buffers buffers(std::size_t{64} << 20);
  timer.run(buffers.copy());
  std::vector<Sample> samples(9);
  for (Sample& s : samples) s = timer.cold(buffers.copy());
  EXPECT_EQ(disagreement(timer.calibration().empty, median_sample(samples)), "");
}

TEST_F(OnGpu, AShortHonestCopyHasClocksThatAgree) {
  Timer timer;
  const Buffers buffers(4096);
  timer.run(buffers.copy());
  std::vector<Sample> cold(9), warm(9);
  for (Sample& s : cold) s = timer.cold(buffers.copy());
  for (Sample& s : warm) s = timer.warm(buffers.copy(), kMostWarmLaunches);
  EXPECT_EQ(disagreement(timer.calibration().empty, median_sample(cold)), "");
  EXPECT_EQ(disagreement(timer.calibration().empty, median_sample(warm)), "");
}

TEST_F(OnGpu, WorkOnAnotherStreamIsNoticed) {
  Timer timer;
  const Buffers buffers(std::size_t{512} << 20);
  // Long beside what the host needs to enqueue the rest: shorter strays end before the clocks start, and are check()'s.
  const Work stray = [&](Stream) {
    for (int i = 0; i < 16; ++i) buffers.copy()(backend::check_stream());
  };
  timer.run(stray);
  std::vector<Sample> samples(5);
  for (Sample& s : samples) s = timer.cold(stray);
  EXPECT_LT(median_sample(samples).seconds, 20e-6) << "the events were meant not to see it";
  EXPECT_NE(disagreement(timer.calibration().empty, median_sample(samples)), "");
}

TEST_F(OnGpu, WorkThatWaitsForTheDeviceIsRefusedAndDoesNotHang) {
  Timer timer;
  EXPECT_THROW(timer.cold([](Stream) { backend::synchronize(); }), Failure);
  EXPECT_GT(timer.cold([](Stream) {}).sm_clock_hz, 0) << "the next sample works again";
}

}  // namespace
}  // namespace ladder
