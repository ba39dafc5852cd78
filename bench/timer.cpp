#include "bench/timer.h"

#include <fmt/format.h>

#include <cmath>

#include "bench/statistics.h"

namespace ladder {
namespace {

// Allowed error of the timer on a known duration.
constexpr double kSpinSlackSeconds = 1e-6;
constexpr double kSpinSlackRatio = 0.01;

// Allowed differences between two clocks' spans. Stamps: the global timer ticks every microsecond at worst (every 32 ns
// on Hopper), events every half; the sample's span and the empty kernel's are off by up to a tick of each. Walls: the
// host's scheduling. Then drift.
constexpr double kStampSlackSeconds = 2 * (1e-6 + 0.5e-6);
constexpr double kWallSlackSeconds = 30e-6;
constexpr double kClockSlackRatio = 0.05;

double median_of(const std::vector<Sample>& samples, double Sample::*figure) {
  std::vector<double> values;
  for (const Sample& s : samples) {
    if (s.*figure != 0) values.push_back(s.*figure);
  }
  return values.empty() ? 0 : median(values);
}

}  // namespace

std::string fault_of(const Calibration& calibration, double dram_bytes_per_s) {
  for (const Calibration::Spin& spin : calibration.spins) {
    const double error = std::abs(spin.seconds - spin.expected_seconds);
    if (!(error <= kSpinSlackSeconds + kSpinSlackRatio * spin.expected_seconds)) {
      return fmt::format("a kernel of {:.2f} us is read as {:.2f} us", 1e6 * spin.expected_seconds, 1e6 * spin.seconds);
    }
  }
  if (dram_bytes_per_s > 0 && !(calibration.copy_bytes_per_s <= dram_bytes_per_s)) {
    return fmt::format("a device copy at {:.0f} GB/s is faster than the memory's {:.0f} GB/s",
                       1e-9 * calibration.copy_bytes_per_s, 1e-9 * dram_bytes_per_s);
  }
  return {};
}

Sample median_sample(const std::vector<Sample>& samples) {
  return {.seconds = median_of(samples, &Sample::seconds),
          .stamp_seconds = median_of(samples, &Sample::stamp_seconds),
          .wall_seconds = median_of(samples, &Sample::wall_seconds),
          .sm_clock_hz = median_of(samples, &Sample::sm_clock_hz),
          .launches = samples.empty() ? 1 : samples.front().launches};
}

std::string disagreement(const Sample& empty, const Sample& sample) {
  const double events = sample.launches * sample.seconds - empty.seconds;
  const double stamps = sample.launches * sample.stamp_seconds - empty.stamp_seconds;
  const double wall = sample.launches * sample.wall_seconds - empty.wall_seconds;
  if (!(std::abs(stamps - events) <= kStampSlackSeconds + kClockSlackRatio * std::abs(events))) {
    return fmt::format("events say {:.1f} us, the GPU's global timer {:.1f} us", 1e6 * events, 1e6 * stamps);
  }
  if (sample.wall_seconds > 0 && !(wall - events <= kWallSlackSeconds + kClockSlackRatio * std::abs(events))) {
    return fmt::format("events say {:.1f} us, the device was busy for {:.1f} us", 1e6 * events, 1e6 * wall);
  }
  return {};
}

}  // namespace ladder
