// Process-wide switch of overlapping launches (LaunchConfig::overlaps_previous). On by default; a program turns it off
// to compare both or to look for a mistake. Captured graphs do not change with it.
#pragma once

#include <atomic>
#include <cstdint>

namespace ladder {

namespace detail {

inline std::atomic<bool> overlap_allowed{true};
inline std::atomic<std::int64_t> serial_launches{0};

}  // namespace detail

inline void overlap_launches(bool on) { detail::overlap_allowed = on; }
inline bool launches_overlap() { return detail::overlap_allowed; }

// Number of launches enqueued or captured so far that wait until the previous launch has ended.
inline std::int64_t num_serial_launches() { return detail::serial_launches; }

}  // namespace ladder
