// The timer: GPU time of what a caller enqueues, free of launch latency, with a known state of the L2 cache.
//
// A cold sample, in the order of the stream: overwrite more than twice the L2 | wait at a gate | event | the work |
// event | time stamp | whatever must be read before anybody else writes. The host enqueues all of it while the stream
// waits, so that the work runs as if the CPU were infinitely fast; then it opens the gate.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/stream.h"

namespace ladder {

// Enqueues something on the stream, without waiting for it.
using Work = std::function<void(Stream)>;

// Times are a launch's share of the sample: its span over `launches`.
struct Sample {
  double seconds = 0;        // between the events; an empty kernel's share is in it, see Calibration
  double stamp_seconds = 0;  // gate to time stamp by the GPU's global timer
  double wall_seconds = 0;   // gate until the whole device is idle by the host's clock; 0 if something came after
  double sm_clock_hz = 0;    // right after the work
  int launches = 1;
};

// How far the timer itself can be believed; found anew in every run.
struct Calibration {
  struct Spin {
    double expected_seconds = 0;  // what a spinning kernel saw of itself on the GPU's global timer
    double seconds = 0;           // what the timer has for it, less an empty kernel
  };
  std::vector<Spin> spins;
  Sample empty;                 // an empty kernel: what every sample holds on top of its kernel
  double copy_bytes_per_s = 0;  // of a device copy much larger than the L2, bytes read and written
  double sm_clock_hz = 0;       // the highest seen
  std::string failure;          // empty, or why no time of this run is to be trusted
};

// Empty, or why a timer that calibrated itself like this cannot be trusted. `dram_bytes_per_s` is what the memory can
// move at most; 0 if unknown.
std::string fault_of(const Calibration& calibration, double dram_bytes_per_s);

// Figure by figure, of samples with equally many launches; an unknown figure, 0, does not count.
Sample median_sample(const std::vector<Sample>& samples);

// Empty if a sample's clocks agree over its span, less that of an empty kernel; else how they differ: a sign of work that
// the events did not see. Work on another stream is caught by the host's clock, which waits for the whole device; events
// that are recorded again or destroyed, by the global timer, whose stamps no event call changes.
std::string disagreement(const Sample& empty, const Sample& sample);

class Timer {
 public:
  // Null, or why nothing can be timed here.
  static const char* unavailable();

  Timer();  // calibrates; throws Failure where unavailable() is not null
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  const Calibration& calibration() const;

  // Runs `work` once, untimed, and waits. Whatever is timed must have run before: CUDA loads a kernel at its first
  // launch, which waits for the device and so would wait for the gate.
  void run(const Work& work);

  // One execution of `work` from a cold L2. `after` is enqueued after the second event on the same stream: what it
  // copies is what the work had written by then.
  Sample cold(const Work& work, const Work& after = {});

  // A kernel that spins for so long at the highest clock seen.
  Work delay(double seconds) const;

  // A device copy, to be used as `after`.
  static Work copy(void* to, const void* from, std::size_t bytes);

  // A kernel that only reads and writes these bytes once, the writes spread over its time as the reads are. Both are
  // rounded up to whole 16 bytes, which must be there.
  static Work streaming_kernel(void* to, std::size_t write_bytes, const void* from, std::size_t read_bytes);

  // The mean of `launches` executions back to back, caches as they leave them.
  Sample warm(const Work& work, int launches, const Work& after = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder
