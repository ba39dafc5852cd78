#include "bench/timer.h"

#include <fmt/format.h>

#include <cmath>

namespace ladder {
namespace {

// How well the timer has to read a known duration.
constexpr double kSpinSlackSeconds = 1e-6;
constexpr double kSpinSlackRatio = 0.01;

// What two clocks may differ by before a time is doubted: the timer's tick or the host's scheduling, then drift.
constexpr double kStampSlackSeconds = 3e-6;
constexpr double kWallSlackSeconds = 30e-6;
constexpr double kClockSlackRatio = 0.05;

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

std::string disagreement(const Calibration& calibration, const Sample& sample) {
  const Sample& empty = calibration.empty;
  const double events = sample.seconds - empty.seconds;
  const double stamps = sample.stamp_seconds - empty.stamp_seconds;
  const double wall = sample.wall_seconds - empty.wall_seconds;
  if (!(std::abs(stamps - events) <= kStampSlackSeconds + kClockSlackRatio * std::abs(events))) {
    return fmt::format("events say {:.1f} us, the GPU's global timer {:.1f} us", 1e6 * events, 1e6 * stamps);
  }
  if (sample.wall_seconds > 0 && !(wall - events <= kWallSlackSeconds + kClockSlackRatio * std::abs(events))) {
    return fmt::format("events say {:.1f} us, the device was busy for {:.1f} us", 1e6 * events, 1e6 * wall);
  }
  return {};
}

}  // namespace ladder
