// Whether launches may overlap in this process (LaunchConfig::overlaps_previous): they may, unless a program says otherwise,
// to compare both or to look for a mistake. What was captured into a graph stays as it is.
#pragma once

#include <atomic>

namespace ladder {

namespace detail {

inline std::atomic<bool> overlap_allowed{true};

}  // namespace detail

inline void overlap_launches(bool on) { detail::overlap_allowed = on; }
inline bool launches_overlap() { return detail::overlap_allowed; }

}  // namespace ladder
