// The timer: GPU time of what a caller enqueues, free of launch latency, with a known state of the L2 cache.
//
// A cold sample, in the order of the stream: overwrite more than twice the L2 | wait at a gate | event | the work |
// event | time stamp | `after`, which reads whatever must be read before anybody else writes. The host enqueues all of
// it while the stream waits, so that the work runs as if the CPU were infinitely fast; then it opens the gate.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/stream.h"

namespace ladder {

// Function that enqueues work on a stream, without waiting for it.
using Work = std::function<void(Stream)>;

// Times of a sample, per launch: the span divided by `launches`.
struct Sample {
  double seconds = 0;        // between the events; includes an empty kernel's time, see Calibration
  double stamp_seconds = 0;  // gate to time stamp by the GPU's global timer
  double wall_seconds = 0;   // gate until the whole device is idle by the host's clock; 0 if something came after
  double sm_clock_hz = 0;    // right after the work
  int launches = 1;
};

// Accuracy of the timer itself, measured anew in every run.
struct Calibration {
  struct Spin {
    double expected_seconds = 0;  // by the spinning kernel itself, on the GPU's global timer
    double seconds = 0;           // by the timer, less an empty kernel
  };
  std::vector<Spin> spins;
  Sample empty;                 // an empty kernel: overhead in every sample
  double copy_bytes_per_s = 0;  // of a device copy much larger than the L2, bytes read and written
  double sm_clock_hz = 0;       // the highest seen
  std::string failure;          // empty, or why no time of this run is to be trusted
};

// Returns empty, or why a timer with this calibration cannot be trusted. `dram_bytes_per_s` is the memory's peak rate;
// 0 if unknown.
std::string fault_of(const Calibration& calibration, double dram_bytes_per_s);

// Median of each figure over samples with equally many launches. A figure of 0 is unknown and does not count.
Sample median_sample(const std::vector<Sample>& samples);

// Returns empty if a sample's clocks agree over its span, less that of an empty kernel; else their difference, a sign
// of work that the events did not see. Work on another stream is caught by the host's clock, which waits for the whole
// device; events that are recorded again or destroyed, by the global timer, whose stamps no event call changes.
std::string disagreement(const Sample& empty, const Sample& sample);

class Timer {
 public:
  // Returns null, or why nothing can be timed here.
  static const char* unavailable();

  Timer();  // calibrates; throws Failure where unavailable() is not null
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  const Calibration& calibration() const;

  // Run `work` once, untimed, and wait. Run it before timing it: CUDA loads a kernel at its first launch, which waits
  // for the device and so would wait for the gate.
  void run(const Work& work);

  // Time one execution of `work` from a cold L2. `after` is enqueued after the second event on the same stream: it
  // copies what the work had written by then.
  Sample cold(const Work& work, const Work& after = {});

  // Returns a kernel that spins for `seconds` at the highest clock seen.
  Work delay(double seconds) const;

  // Returns a device copy, to be used as `after`.
  static Work copy(void* to, const void* from, std::size_t bytes);

  // Returns a kernel that only reads and writes these bytes once, the writes spread over its time as the reads are.
  // Both sizes are rounded up to whole 16 bytes, which must be allocated.
  static Work streaming_kernel(void* to, std::size_t write_bytes, const void* from, std::size_t read_bytes);

  // Time the mean of `launches` executions back to back, with caches as the executions leave them.
  Sample warm(const Work& work, int launches, const Work& after = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder
