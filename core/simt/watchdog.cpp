#include "core/simt/watchdog.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/simt/block.h"

namespace ladder::simt {
namespace {

const int kSignal = SIGRTMIN + 3;

int limit_seconds() {
  static const int limit = [] {
    constexpr int kDefault = 20;
    const char* given = std::getenv("LADDER_WATCHDOG_SECONDS");
    if (!given) return kDefault;
    int seconds = 0;
    const char* end = given + std::strlen(given);
    const auto [rest, error] = std::from_chars(given, end, seconds);
    return error == std::errc() && rest == end && seconds >= 0 ? seconds : kDefault;
  }();
  return limit;
}

// "file:line" of the machine instruction at `address`, of the outermost inlined function that is not the emulator's; the
// function's name, or the address, where there is no more to know.
std::string place_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return fmt::format("{}", address);
  const auto offset = static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase);
  const std::string command = fmt::format("addr2line -i -e '{}' {:#x} 2>/dev/null", info.dli_fname, offset);
  std::string place;
  if (const std::unique_ptr<FILE, int (*)(FILE*)> lines(popen(command.c_str(), "r"), pclose); lines) {
    std::array<char, 4096> line;
    while (std::fgets(line.data(), line.size(), lines.get())) {
      std::string_view text(line.data());
      text = text.substr(0, text.find_first_of(" \n"));  // after a blank stands a discriminator
      if (text.starts_with("??") || text.ends_with(":0") || text.ends_with(":?")) continue;
      place = text;
      if (place.find("/core/") == std::string::npos && !place.starts_with("/usr/")) break;
    }
  }
  if (!place.empty()) return place;
  return info.dli_sname ? info.dli_sname : fmt::format("{}", address);
}

void report(BlockCluster& cluster, const Fiber& fiber, const void* at) {
  cluster.fail(fiber, fmt::format("{}: the thread has run for {} s without reaching any barrier: it loops for ever "
                                  "(LADDER_WATCHDOG_SECONDS sets how long is too long)",
                                  place_of(at), limit_seconds()));
}

// How often in a row the thread was seen without a switch in between.
struct Watched {
  std::uint64_t switches = 0;
  int ticks = 0;
};
thread_local Watched watched;

// Comes every second of the thread's processor time.
void on_tick(int, siginfo_t*, void* context) {
  if (detail::current == nullptr) return;
  const int saved_errno = errno;
  Fiber& fiber = running();
  BlockCluster& cluster = fiber.block->cluster();
  if (cluster.num_switches() != watched.switches) {
    watched = {.switches = cluster.num_switches(), .ticks = 0};
  } else if (++watched.ticks >= limit_seconds()) {
    watched = {};
    const greg_t at = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
    report(cluster, fiber, reinterpret_cast<const void*>(at));  // NOLINT(performance-no-int-to-ptr): a register's value
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
      action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
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
