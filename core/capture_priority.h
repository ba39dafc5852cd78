// Process-wide switch: in graphs captured while it is on, blocks of the captured stream's kernels are placed on SMs before
// those of streams that joined the capture. Off by default. The emulator has no priorities.
#pragma once

#include <atomic>

namespace ladder {

namespace detail {

inline std::atomic<bool> captured_stream_first{false};

}  // namespace detail

inline void prioritize_captured_stream(bool on) { detail::captured_stream_first = on; }
inline bool captured_stream_has_priority() { return detail::captured_stream_first; }

}  // namespace ladder
