#include "core/simt/access.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "core/simt/block.h"
#include "core/simt/memory.h"
#include "core/simt/pages.h"
#include "core/simt/place.h"

namespace ladder::simt {

void end_thread(const std::string& what) {
  Fiber& fiber = running();
  BlockCluster& cluster = fiber.block->cluster();
  cluster.fail(fiber, what);
  cluster.abandon(fiber);
  __builtin_unreachable();
}

}  // namespace ladder::simt

// Replacement of the C library's function behind assert(): kernels are compiled without NDEBUG.
extern "C" [[noreturn]] void __assert_fail(const char* condition, const char* file, unsigned line,
                                           const char* function) noexcept {
  using namespace ladder::simt;
  if (detail::current != nullptr) {
    end_thread(fmt::format("{}:{}: {}: assert({}) failed", relative_path(file), line, function, condition));
  }
  std::fprintf(stderr, "%s:%u: %s: assert(%s) failed\n", file, line, function, condition);
  std::abort();
}

#if !defined(LADDER_ASAN)

namespace ladder::simt {

namespace {

// Describe `address` for a report: the running thread's full stack, shared memory, or the nearest buffer.
std::string describe(const Fiber& fiber, const void* address) {
  const auto* const byte = static_cast<const unsigned char*>(address);
  const auto* const stack = static_cast<const unsigned char*>(fiber.stack_bottom);
  if (byte >= stack - kPage && byte < stack) {
    return fmt::format("the thread's stack of {} KiB is full: a large local array, or a recursion",
                       fiber.stack_bytes / 1024);
  }
  const std::string shared = fiber.block->cluster().describe_shared(address);
  return shared.empty() ? describe_memory(address) : shared;
}

void on_bad_access(int number, siginfo_t* info, void* context) {
  const bool in_buffer = in_memory(info->si_addr);
  const bool too_early = in_buffer && detail::current != nullptr && running().block->cluster().closed_to(running());
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  constexpr greg_t kWrites = 2;  // bit of the page-fault error code
  const bool writes = (registers[REG_ERR] & kWrites) != 0;
  const bool to_input = in_buffer && writes && is_read_only(info->si_addr);
  if (to_input && detail::current == nullptr) {  // by the host: a later comparison of the buffer finds the change
    set_read_only(info->si_addr, false);
    return;
  }
  if (in_buffer && !too_early && !to_input) {  // closed by another OS thread's cluster: retry
    sched_yield();
    return;
  }
  if (detail::current == nullptr) {  // not in a kernel: end as without a handler
    std::signal(number, SIG_DFL);
    return;
  }
  const void* const at = reinterpret_cast<const void*>(registers[REG_RIP]);  // NOLINT(performance-no-int-to-ptr)
  const char* const access = writes ? "a write" : "a read";
  if (too_early) {
    end_thread(fmt::format("{}: {} before griddepcontrol.wait: the kernel in front may {}: {}", place_of(at), access,
                           writes ? "still use what lies there" : "not have written it yet",
                           describe_memory(info->si_addr)));
  }
  if (to_input) end_thread(fmt::format("{}: a write to an input: {}", place_of(at), describe_memory(info->si_addr)));
  end_thread(fmt::format("{}: {} out of bounds: {}", place_of(at), access, describe(running(), info->si_addr)));
}

// Signal stack of an OS thread: the kernel's own stack may be the one that overflowed.
struct HandlerStack {
  static constexpr std::size_t kBytes = 128 * 1024;
  HandlerStack() : memory(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    const stack_t stack{.ss_sp = memory, .ss_flags = 0, .ss_size = kBytes};
    if (memory != MAP_FAILED) sigaltstack(&stack, nullptr);
  }
  ~HandlerStack() {
    if (memory == MAP_FAILED) return;
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
    munmap(memory, kBytes);
  }
  HandlerStack(const HandlerStack&) = delete;
  HandlerStack& operator=(const HandlerStack&) = delete;

  void* memory;
};

// Argument of the handler that -fsanitize=alignment calls for a failed check; kernels are compiled with these checks
// (CMakeLists.txt). GCC and Clang agree on its layout since UBSan's version 1.
struct AlignmentCheck {
  const char* file;
  std::uint32_t line;
  std::uint32_t column;
  const void* type;
  unsigned char log_alignment;
  unsigned char kind;
};

}  // namespace

void catch_bad_accesses() {
  static std::once_flag installed;
  std::call_once(installed, [] {
    struct sigaction action {};
    action.sa_sigaction = on_bad_access;
    // NODEFER: the handler of a thread that is ended never returns.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
  });
  thread_local const HandlerStack stack;
  (void)stack;
}

}  // namespace ladder::simt

extern "C" {

// NOLINTNEXTLINE(bugprone-reserved-identifier): the name that compilers call
[[noreturn, gnu::visibility("default")]] void __ubsan_handle_type_mismatch_v1_abort(ladder::simt::AlignmentCheck* check,
                                                                                    const void* address) {
  using namespace ladder::simt;
  const unsigned alignment = 1u << check->log_alignment;
  if (detail::current == nullptr) {  // on the host: an exception thrown through a check is not caught
    std::fprintf(stderr, "%s:%u: %p is not at a multiple of %u bytes\n", check->file, check->line, address, alignment);
    std::abort();
  }
  const void* const at = __builtin_return_address(0);
  const std::string source_line =
      place_of(at, fmt::format("{}:{}:{}", relative_path(check->file), check->line, check->column));
  end_thread(fmt::format("{}: misaligned: {} is not at a multiple of {} bytes", source_line,
                         describe(running(), address), alignment));
}
}

#else

namespace ladder::simt {
void catch_bad_accesses() {}
}  // namespace ladder::simt

#endif
