// Calls that tell AddressSanitizer of fibers and reused memory. Empty without it.
#pragma once

#include <cstddef>

#if defined(LADDER_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace ladder::simt::sanitizer {

#if defined(LADDER_ASAN)
inline constexpr bool kHandlesSignals = true;  // it has its own signal stacks and reports
inline constexpr std::size_t kStackBytes = 256 * 1024;
inline void poison(void* p, std::size_t bytes) { __asan_poison_memory_region(p, bytes); }
inline void unpoison(void* p, std::size_t bytes) { __asan_unpoison_memory_region(p, bytes); }
inline bool poisoned(const void* p, std::size_t bytes) {
  return __asan_region_is_poisoned(const_cast<void*>(p), bytes) != nullptr;
}
// Enclose a switch of stacks. `fake` keeps the fake stack of the side that is left (null: it never comes back); `size`
// bytes from `bottom` are the stack that is entered.
inline void begin_switch(void** fake, const void* bottom, std::size_t size) {
  __sanitizer_start_switch_fiber(fake, bottom, size);
}
inline void end_switch(void* fake, const void** left_bottom, std::size_t* left_size) {
  __sanitizer_finish_switch_fiber(fake, left_bottom, left_size);
}
#else
inline constexpr bool kHandlesSignals = false;
#if defined(LADDER_ORDER)  // a report of order.cpp asks for source lines on the kernel's stack
inline constexpr std::size_t kStackBytes = 256 * 1024;
#else
inline constexpr std::size_t kStackBytes = 64 * 1024;
#endif
inline void poison(void*, std::size_t) {}
inline void unpoison(void*, std::size_t) {}
inline bool poisoned(const void*, std::size_t) { return false; }
inline void begin_switch(void**, const void*, std::size_t) {}
inline void end_switch(void*, const void**, std::size_t*) {}
#endif

}  // namespace ladder::simt::sanitizer
