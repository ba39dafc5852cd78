// Times of a candidate, measured by its own process, checked against the hardware's lower bounds, and times of the
// baseline.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/timer.h"
#include "bench/untrusted/remote.h"
#include "core/check/check.h"

namespace ladder {

// Launches per warm sample: enough for 100 us, so that the clocks' resolution (bench/timer.cpp) is small in comparison,
// but no more than the stream's queue holds while the gate is shut. `seconds`: time of one launch, reported by the
// candidate's process.
constexpr int kLeastWarmLaunches = 20;
constexpr int kMostWarmLaunches = 100;
inline int warm_launches(double seconds) {
  return static_cast<int>(std::min<double>(kMostWarmLaunches, std::max<double>(kLeastWarmLaunches, 100e-6 / seconds)));
}

struct CandidateTimes {
  std::string doubt;  // reason not to trust the times; empty if none
  double cold_seconds = 0;
  double warm_seconds = 0;
};

// Time the problem that `remote` was asked about last. One random round, known to this process only, has different
// inputs. Outputs are compared with the reference in that round, in the first and in the last. Throws Failure.
CandidateTimes times_of(Remote& remote, CheckedCase& c, const AnyVersionDef& def);

struct BaselineTime {
  double cold_seconds = 0;  // 0 without a baseline
  std::string library;      // name of the library, or the reason that there is no baseline
};

// Time the baseline in this process, on the same device.
BaselineTime baseline_of(CheckedCase& c);

}  // namespace ladder
