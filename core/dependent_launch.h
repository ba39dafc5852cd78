// Host side of programmatic dependent launch (LaunchConfig::overlaps_previous, dev/ptx/grid_dependency.h): the process-wide
// switch of overlapping launches, and the tensors that a kernel may load before it waits for the grid in front.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace ladder {

namespace detail {

inline std::atomic<bool> overlap_allowed{true};
inline std::atomic<std::int64_t> serial_launches{0};

}  // namespace detail

// On by default; a program turns it off to compare both or to look for a mistake. Captured graphs do not change with it.
inline void overlap_launches(bool on) { detail::overlap_allowed = on; }
inline bool launches_overlap() { return detail::overlap_allowed; }

// Number of launches enqueued or captured so far that wait until the previous launch has ended.
inline std::int64_t num_serial_launches() { return detail::serial_launches; }

// While it lives, kernels that this thread binds may load these tensors before they wait for the grid in front. The caller
// promises that whenever such a kernel is launched, no grid that writes one of them is among the two in front of it on its
// stream, unless that one has ended. None by default.
class EarlyTensors {
 public:
  explicit EarlyTensors(std::vector<const void*> tensors);
  ~EarlyTensors();
  EarlyTensors(const EarlyTensors&) = delete;
  EarlyTensors& operator=(const EarlyTensors&) = delete;

 private:
  std::vector<const void*> before_;
};

// Returns true if the kernel that is being bound may load `tensor` early.
bool loads_early(const void* tensor);

// Process-wide switch of early loads, for kernels that are bound from then on. On by default.
void load_early(bool on);

}  // namespace ladder
