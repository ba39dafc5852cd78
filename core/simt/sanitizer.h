// Calls that tell AddressSanitizer and ThreadSanitizer of fibers and reused memory. Empty without these sanitizers.
// ThreadSanitizer sees every CUDA thread as a thread of its own, switched to without synchronisation: only barriers (and
// the end of the launch) order accesses, so a missing barrier is a data race whatever the schedule.
#pragma once

#include <cstddef>

#if defined(LADDER_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(LADDER_TSAN)
#include <sanitizer/tsan_interface.h>
// Functions of ThreadSanitizer's runtime library that no public header declares.
extern "C" {
void __tsan_read_range(void* p, unsigned long bytes);
void __tsan_write_range(void* p, unsigned long bytes);
void __tsan_ignore_thread_begin();
void __tsan_ignore_thread_end();
}
#endif
#include <sys/mman.h>

#include "core/simt/pages.h"

namespace ladder::simt::sanitizer {

#if defined(LADDER_ASAN)
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
inline constexpr std::size_t kStackBytes = 64 * 1024;
inline void poison(void*, std::size_t) {}
inline void unpoison(void*, std::size_t) {}
inline bool poisoned(const void*, std::size_t) { return false; }
inline void begin_switch(void**, const void*, std::size_t) {}
inline void end_switch(void*, const void**, std::size_t*) {}
#endif

#if defined(LADDER_ASAN) || defined(LADDER_TSAN)
inline constexpr bool kHandlesSignals = true;  // the sanitizer has its own signal stacks and reports
#else
inline constexpr bool kHandlesSignals = false;
#endif

#if defined(LADDER_TSAN)
// Most CUDA threads at once: the library dies of more than 8128 threads, and every CUDA thread is two of them, see
// Block::begin().
inline constexpr unsigned kMaxFibers = 1024;
// Most CUDA threads of a cluster whose fibers alternate between two of ThreadSanitizer's. A larger cluster has only one
// for each, so that it can run at all: races between such clusters do not show.
inline constexpr unsigned kMaxInTurn = 2048;
inline void* create_fiber() { return __tsan_create_fiber(0); }
inline void destroy_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
inline void* current_fiber() { return __tsan_get_current_fiber(); }
inline void switch_to_fiber(void* fiber) { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
inline void release(void* p) { __tsan_release(p); }
inline void acquire(void* p) { __tsan_acquire(p); }
// Release on behalf of a fiber that was abandoned.
inline void release_as(void* fiber, void* p) {
  void* const self = current_fiber();
  switch_to_fiber(fiber);
  release(p);
  switch_to_fiber(self);
}
// Note accesses of the copy engine and the tensor cores, on behalf of the thread that started them.
inline constexpr bool kNotesAccesses = true;
inline void did_read(const void* p, std::size_t bytes) { __tsan_read_range(const_cast<void*>(p), bytes); }
inline void wrote(void* p, std::size_t bytes) { __tsan_write_range(p, bytes); }
inline void fence_proxy_async() {}  // it knows no proxies
// Hides the emulator's own bookkeeping until the end of the scope: library functions are seen wherever they are called
// from, and this memory belongs to no thread in particular.
struct Unseen {
  Unseen() { __tsan_ignore_thread_begin(); }
  ~Unseen() { __tsan_ignore_thread_end(); }
};
// Forget the access history of whole pages, from the first touched page to the last; their contents become zero. At
// most 512 KiB.
inline void forget(void* pages, std::size_t bytes) {
  constexpr std::size_t kMaxPages = 128;
  unsigned char touched[kMaxPages];
  const std::size_t num_pages = bytes / kPage < kMaxPages ? bytes / kPage : kMaxPages;
  mincore(pages, num_pages * kPage, touched);
  std::size_t first = 0;
  std::size_t end = num_pages;
  while (first < end && !(touched[first] & 1)) ++first;
  while (end > first && !(touched[end - 1] & 1)) --end;
  if (first == end) return;
  mmap(static_cast<char*>(pages) + first * kPage, (end - first) * kPage, PROT_READ | PROT_WRITE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}
#else
// Most fibers at once: every stack takes two of the 65530 mappings that Linux allows a process.
inline constexpr unsigned kMaxFibers = 16 * 1024;
inline constexpr unsigned kMaxInTurn = kMaxFibers;
inline void* create_fiber() { return nullptr; }
inline void destroy_fiber(void*) {}
inline void* current_fiber() { return nullptr; }
inline void switch_to_fiber(void*) {}
inline void release(void*) {}
inline void acquire(void*) {}
inline void release_as(void*, void*) {}
inline constexpr bool kNotesAccesses = false;
inline void did_read(const void*, std::size_t) {}
inline void wrote(void*, std::size_t) {}
inline void fence_proxy_async() {}
struct Unseen {
  Unseen() {}
};
inline void forget(void*, std::size_t) {}
#endif

}  // namespace ladder::simt::sanitizer
