// How long a candidate takes, as its own process measures it, held against what the hardware can do and the baseline.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/timer.h"
#include "bench/untrusted/remote.h"
#include "core/check/check.h"

namespace ladder {

// Launches of a warm sample: enough for 100 us, beside which the clocks' resolution (bench/timer.cpp) is small, but no more
// than the stream's queue holds while the gate is shut. `seconds`: of one launch, as the candidate's process told it.
constexpr int kLeastWarmLaunches = 20;
constexpr int kMostWarmLaunches = 100;
inline int warm_launches(double seconds) {
  return static_cast<int>(std::min<double>(kMostWarmLaunches, std::max<double>(kLeastWarmLaunches, 100e-6 / seconds)));
}

struct CandidateTimes {
  std::string doubt;  // empty, or why it is not believed
  double cold_seconds = 0;
  double warm_seconds = 0;
};

// Of the problem that `remote` was asked about last. The inputs are others in a round that only this process knows, and
// what it writes is compared with the reference then, in the first round and in the last. Throws Failure.
CandidateTimes times_of(Remote& remote, CheckedCase& c, const AnyVersionDef& def);

struct BaselineTime {
  double cold_seconds = 0;  // 0 without a baseline
  std::string library;      // its name, or why there is none
};

// Measured in this process, on the same device.
BaselineTime baseline_of(CheckedCase& c);

}  // namespace ladder
