// Whether launches may overlap in this process (LaunchConfig::overlaps_previous): they may, unless a program says otherwise,
// to compare both or to look for a mistake. What was captured into a graph stays as it is.
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

// How many launches were enqueued or captured so far that ask to wait until the one in front has ended.
inline std::int64_t num_serial_launches() { return detail::serial_launches; }

}  // namespace ladder
