#include "core/simt/watchdog.h"

#include <fmt/format.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>

#include "core/simt/block.h"
#include "core/simt/place.h"
#include "core/simt/sanitizer.h"

namespace ladder::simt {
namespace {

const int kSignal = SIGRTMIN + 3;

int limit_seconds() {
  static const int limit = [] {
    constexpr int kDefault = 10;
    const char* given = std::getenv(kWatchdogVariable);
    if (!given) return kDefault;
    int seconds = 0;
    const char* end = given + std::strlen(given);
    const auto [parsed_end, error] = std::from_chars(given, end, seconds);
    return error == std::errc() && parsed_end == end && seconds >= 0 ? seconds : kDefault;
  }();
  return limit;
}

// Time limit of a block, in multiples of the limit of a thread between two barriers.
constexpr int kBlockLimits = sanitizer::kHandlesSignals ? 60 : 6;

// Number of successive ticks without a switch between threads.
struct Watched {
  std::uint64_t switches = 0;
  int ticks = 0;
};
thread_local Watched watched;

// Signal handler: called every second of the thread's processor time.
void on_tick(int, siginfo_t*, void* context) {
  if (detail::current == nullptr) return;
  const int saved_errno = errno;
  Fiber& fiber = running();
  BlockCluster& cluster = fiber.block->cluster();
  if (cluster.tick() >= kBlockLimits * limit_seconds()) cluster.end_at_next_switch();
  if (cluster.num_switches() != watched.switches) {
    watched = {.switches = cluster.num_switches(), .ticks = 0};
  } else if (++watched.ticks >= limit_seconds()) {
    watched = {};
    const greg_t at = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
    cluster.fail<Endless>(
        fiber, fmt::format("{}: the thread has run for {} s without reaching any barrier: it loops for ever ({} sets "
                           "how long is too long)",
                           place_of(reinterpret_cast<const void*>(at)),  // NOLINT(performance-no-int-to-ptr)
                           limit_seconds(), kWatchdogVariable));
    cluster.abandon(fiber);  // never returns: nothing that this function holds is ever destroyed
  }
  errno = saved_errno;
}

struct ThreadTimer {
  ThreadTimer() {
    static std::once_flag installed;
    std::call_once(installed, [] {
      struct sigaction action {};
      action.sa_sigaction = on_tick;
      // NODEFER: the handler of a thread that is abandoned never returns.
      action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER | (sanitizer::kHandlesSignals ? 0 : SA_ONSTACK);
      sigaction(kSignal, &action, nullptr);
    });
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kSignal;
    event._sigev_un._tid = gettid();
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return;
    const itimerspec every_second{.it_interval = {.tv_sec = 1, .tv_nsec = 0}, .it_value = {.tv_sec = 1, .tv_nsec = 0}};
    timer_settime(timer, 0, &every_second, nullptr);
    there = true;
  }
  ~ThreadTimer() {
    if (there) timer_delete(timer);
  }
  ThreadTimer(const ThreadTimer&) = delete;
  ThreadTimer& operator=(const ThreadTimer&) = delete;

  timer_t timer = nullptr;
  bool there = false;
};

}  // namespace

void watch_this_thread() {
  if (limit_seconds() == 0) return;
  thread_local const ThreadTimer timer;
  (void)timer;
}

}  // namespace ladder::simt
