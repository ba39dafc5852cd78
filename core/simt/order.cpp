#if defined(LADDER_ORDER)

#include "core/simt/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/simt/access.h"
#include "core/simt/block.h"
#include "core/simt/memory.h"
#include "core/simt/order_cells.h"
#include "core/simt/order_clocks.h"
#include "core/simt/place.h"

namespace ladder::simt::order {

namespace {

// Places of accesses: an instruction's distance from this one, or from kWhere on an index of Checker::wheres.
constexpr std::int32_t kWhere = 1 << 30;
const char* anchor() { return reinterpret_cast<const char*>(&release_fence); }

struct Checker {
  const BlockCluster* cluster = nullptr;
  Clocks clocks;
  Cells cells{clocks};
  std::vector<Where> wheres;
};

// The OS thread's checker, if its latest launch is checked, else null.
constinit thread_local Checker* active = nullptr;

// The OS thread's checker, if this launch is checked.
Checker* this_launch() {
  const char* const variable = std::getenv("LADDER_ORDER");
  const std::string_view said = variable == nullptr ? "" : variable;
  if (said == "off") return nullptr;
  thread_local const auto checker = std::make_unique<Checker>();
  checker->cells.begin_launch(/*reports_unset=*/said == "unset");
  return checker.get();
}

unsigned self() {
  const Fiber& fiber = running();
  return active->clocks.thread(static_cast<unsigned>(fiber.block->rank()), static_cast<unsigned>(fiber.index));
}

// --- The report of a race

std::string place_of(const Access& access) {
  if (access.place < kWhere) return simt::place_of(anchor() + access.place - 1);
  const Where& where = active->wheres[static_cast<std::size_t>(access.place - kWhere)];
  return fmt::format("{}:{}", where.file, where.line);
}

// "a write by thread (1,0,0) of block (0,0,0)", "a read by wgmma of warpgroup 1 of block (0,0,0)".
std::string describe(const Access& access) {
  const auto& [cluster, clocks, cells, wheres] = *active;
  const char* const kind = access.flags & kAtomic   ? "an atomic operation"
                           : access.flags & kWrites ? "a write"
                                                    : "a read";
  std::string block;
  if (access.cluster == clocks.cluster()) {
    block = "block " + cluster->block(static_cast<int>(clocks.rank_of(access.who))).name();
  } else {
    const uint3 index = clocks.index_of(access.cluster);
    const std::string name = fmt::format("({},{},{})", index.x, index.y, index.z);
    block = cluster->size() == 1 ? "block " + name
                                 : fmt::format("block {} of cluster {}", clocks.rank_of(access.who), name);
  }
  if (clocks.is_copy(access.who)) return fmt::format("{} by a copy into {}", kind, block);
  if (clocks.is_warpgroup(access.who)) {
    return fmt::format("{} by wgmma of warpgroup {} of {}", kind, clocks.warpgroup_of(access.who), block);
  }
  const unsigned index = clocks.in_block(access.who);
  const dim3 shape = running().block_dim;
  return fmt::format("{} by thread ({},{},{}) of {}", kind, index % shape.x, index / shape.x % shape.y,
                     index / shape.x / shape.y, block);
}

const char* missing_edge(const Access& earlier, const Access& access) {
  const Clocks& clocks = active->clocks;
  const unsigned thread = self();
  if (earlier.cluster != clocks.cluster()) {
    return "blocks of a grid run in any order; __threadfence() and an atomic on both sides would order them";
  }
  if ((access.flags & kAsync) && (earlier.flags & kWrites) && clocks.before(earlier.event(), thread)) {
    return "no fence.proxy.async by that thread between its store and the barrier that announces it";
  }
  if (clocks.is_copy(earlier.who)) return "no wait for the mbarrier phase that this copy completes";
  if (clocks.is_warpgroup(earlier.who)) return "no wgmma.wait_group for that multiplication between them";
  if (clocks.rank_of(earlier.who) != clocks.rank_of(thread)) {
    return "no barrier.cluster, or arrival at an mbarrier with release.cluster, orders these blocks";
  }
  const bool same_warp = clocks.in_block(earlier.who) / kWarpSize == clocks.in_block(thread) / kWarpSize;
  return same_warp ? "no __syncwarp() or barrier between them" : "no barrier between them";
}

[[noreturn]] void race(const Access& earlier, const Access& access, std::uintptr_t address) {
  const auto* const bytes = reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
  const std::string shared = active->cluster->describe_shared(bytes);
  if (earlier.cluster == 0) {
    end_thread(
        fmt::format("{}: nobody wrote this shared memory: {} of {}", place_of(access), describe(access), shared));
  }
  end_thread(fmt::format("{}: a race: {} of {}; {}: {}; {}", place_of(access), describe(access),
                         shared.empty() ? describe_memory(bytes) : shared, place_of(earlier), describe(earlier),
                         missing_edge(earlier, access)));
}

void note(const void* p, std::size_t bytes, const Access& access) {
  std::uintptr_t raced = 0;
  const Access* const earlier = active->cells.note(reinterpret_cast<std::uintptr_t>(p), bytes, self(), access, raced);
  if (earlier != nullptr) [[unlikely]]
    race(*earlier, access, raced);
}

void note(Agent agent, const void* p, std::size_t bytes, unsigned flags, Where where) {
  std::vector<Where>& wheres = active->wheres;
  auto found = std::find(wheres.begin(), wheres.end(), where);
  if (found == wheres.end()) found = wheres.insert(found, where);
  note(p, bytes,
       {.cluster = active->clocks.cluster(),
        .epoch = agent.epoch,
        .place = kWhere + static_cast<std::int32_t>(found - wheres.begin()),
        .who = static_cast<std::uint16_t>(agent.who),
        .flags = static_cast<std::uint8_t>(flags)});
}

// An access that the compiler reports, with the return address of its call.
void note(const volatile void* p, std::size_t bytes, unsigned flags, const void* pc) {
  if (active == nullptr || detail::current == nullptr) return;  // of the host
  const Fiber& fiber = running();
  if (reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(fiber.stack_bottom) < fiber.stack_bytes) {
    return;
  }
  const unsigned thread = self();
  note(const_cast<const void*>(p), bytes,
       {.cluster = active->clocks.cluster(),
        .epoch = active->clocks.epoch(thread),
        .place = static_cast<std::int32_t>(static_cast<const char*>(pc) - anchor()),
        .who = static_cast<std::uint16_t>(thread),
        .flags = static_cast<std::uint8_t>(flags)});
}

}  // namespace

// --- Calls of the emulator

void begin_launch(const Launch& launch) {
  active = this_launch();
  if (active == nullptr) return;
  const auto count = [](dim3 d) { return d.x * d.y * d.z; };
  if (active->clocks.begin_launch(count(launch.cluster), count(launch.block))) return;
  active = nullptr;
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  std::fprintf(stderr, "order: not checked: a cluster or cooperative grid of %u blocks of %u threads\n",
               count(launch.cluster), count(launch.block));
}

void begin_cluster(const BlockCluster& cluster, uint3 index) {
  if (active == nullptr) return;
  active->cluster = &cluster;
  active->clocks.begin_cluster(static_cast<unsigned>(cluster.size()), index);
  active->cells.begin_cluster(cluster);
}

void end_cluster() {
  if (active != nullptr) active->clocks.end_cluster();
}

void release(const void* at) {
  if (active != nullptr) active->clocks.release(self(), at);
}
void acquire(const void* at) {
  if (active != nullptr) active->clocks.acquire(self(), at);
}
void release_fence() {
  if (active != nullptr) active->clocks.release_fence(self());
}
void acquire_fence() {
  if (active != nullptr) active->clocks.acquire_fence(self());
}
void fence_proxy_async() {
  if (active != nullptr) active->clocks.fence_proxy_async(self());
}
Agent copy_into(const Block& block) {
  return active == nullptr ? Agent{} : active->clocks.next_copy(static_cast<unsigned>(block.rank()));
}
Agent multiplication(const Block& block, int warpgroup, std::uint64_t number) {
  if (active == nullptr) return {};
  return active->clocks.multiplication(static_cast<unsigned>(block.rank()), static_cast<unsigned>(warpgroup), number);
}
void async_read(Agent agent, const void* p, std::size_t bytes, Where where) {
  if (active != nullptr) note(agent, p, bytes, kAsync, where);
}
void async_wrote(Agent agent, const void* p, std::size_t bytes, bool generic_proxy, Where where) {
  if (active != nullptr) note(agent, p, bytes, generic_proxy ? kWrites : kWrites | kAsync, where);
}
void release(Agent agent, const void* at) {
  if (active != nullptr) active->clocks.release(agent, at);
}
void acquire(Agent agent) {
  if (active != nullptr) active->clocks.acquire(self(), agent);
}
void wrote(const void* p, std::size_t bytes, Where where) {
  if (active != nullptr) note(Agent{self(), active->clocks.epoch(self())}, p, bytes, kWrites, where);
}

}  // namespace ladder::simt::order

// --- Calls of the compiler, for an access before it is made

using ladder::simt::order::kAtomic;
using ladder::simt::order::kWrites;
using ladder::simt::order::note;

// NOLINTBEGIN(bugprone-reserved-identifier): names that compilers call
#define LADDER_ORDER_PLAIN(bytes)                                                            \
  void __tsan_read##bytes(const void* p) { note(p, bytes, 0, __builtin_return_address(0)); } \
  void __tsan_write##bytes(const void* p) { note(p, bytes, kWrites, __builtin_return_address(0)); }
#define LADDER_ORDER_UPDATE(bits, T, operation)                         \
  T __tsan_atomic##bits##_##operation(volatile T* p, T value, int) {    \
    note(p, sizeof(T), kWrites | kAtomic, __builtin_return_address(0)); \
    return __atomic_##operation(p, value, __ATOMIC_SEQ_CST);            \
  }
#define LADDER_ORDER_EXCHANGE_IF(bits, T, name, may_fail)                                                 \
  bool __tsan_atomic##bits##_compare_exchange_##name(volatile T* p, T* expected, T value, int, int) {     \
    note(p, sizeof(T), kWrites | kAtomic, __builtin_return_address(0));                                   \
    return __atomic_compare_exchange_n(p, expected, value, may_fail, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
#define LADDER_ORDER_ATOMIC(bits, T)                                    \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {              \
    note(p, sizeof(T), kAtomic, __builtin_return_address(0));           \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                        \
  }                                                                     \
  void __tsan_atomic##bits##_store(volatile T* p, T value, int) {       \
    note(p, sizeof(T), kWrites | kAtomic, __builtin_return_address(0)); \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                       \
  }                                                                     \
  LADDER_ORDER_EXCHANGE_IF(bits, T, strong, false)                      \
  LADDER_ORDER_EXCHANGE_IF(bits, T, weak, true)                         \
  T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) {       \
    note(p, sizeof(T), kWrites | kAtomic, __builtin_return_address(0)); \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);             \
  }                                                                     \
  LADDER_ORDER_UPDATE(bits, T, fetch_add)                               \
  LADDER_ORDER_UPDATE(bits, T, fetch_sub)                               \
  LADDER_ORDER_UPDATE(bits, T, fetch_and)                               \
  LADDER_ORDER_UPDATE(bits, T, fetch_or)                                \
  LADDER_ORDER_UPDATE(bits, T, fetch_xor)                               \
  LADDER_ORDER_UPDATE(bits, T, fetch_nand)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
LADDER_ORDER_PLAIN(1)
LADDER_ORDER_PLAIN(2)
LADDER_ORDER_PLAIN(4)
LADDER_ORDER_PLAIN(8)
LADDER_ORDER_PLAIN(16)
void __tsan_read_range(const void* p, std::size_t bytes) { note(p, bytes, 0, __builtin_return_address(0)); }
void __tsan_write_range(void* p, std::size_t bytes) { note(p, bytes, kWrites, __builtin_return_address(0)); }
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
LADDER_ORDER_ATOMIC(8, std::uint8_t)
LADDER_ORDER_ATOMIC(16, std::uint16_t)
LADDER_ORDER_ATOMIC(32, std::uint32_t)
LADDER_ORDER_ATOMIC(64, std::uint64_t)
}
// NOLINTEND(bugprone-reserved-identifier)

#endif
