// mbarriers, as mbarrier.h documents them.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/simt/block.h"
#include "core/simt/mbarrier.h"
#include "core/simt/order.h"

namespace ladder::simt {

namespace {

constexpr unsigned kMaxArrivals = (1u << 20) - 1;
constexpr int kMaxBytes = (1 << 20) - 1;
constexpr unsigned kTag = 0b10;  // neither poison nor zeros

}  // namespace

struct Mbarriers::State {
  std::uint64_t expected : 20;     // arrivals in every phase
  std::uint64_t outstanding : 20;  // arrivals in this one
  std::int64_t bytes : 21;         // announced less landed; negative if a copy landed before its announcement
  std::uint64_t parity : 1;        // of the current phase
  std::uint64_t tag : 2;

  bool complete() const { return outstanding == 0 && bytes == 0; }
  bool never_completes() const { return outstanding == 0 && bytes < 0; }
};

namespace {

// Address that orders a phase's arrivals and waits (order.h), one of two: the next phase begins at once.
void* phase_sync(std::uint64_t* barrier, unsigned parity) { return reinterpret_cast<char*>(barrier) + parity; }

}  // namespace

Mbarriers::Live* Mbarriers::find(const void* barrier) {
  const auto live = std::find_if(live_.begin(), live_.end(), [=](const Live& l) { return l.address == barrier; });
  return live == live_.end() ? nullptr : &*live;
}

Mbarriers::State Mbarriers::checked(const std::uint64_t* barrier, Where where) {
  detail::check_aligned(barrier, sizeof(*barrier), "mbarrier: not aligned to 8 bytes", where);
  if (!block_.shared().contains(barrier, sizeof(*barrier))) {
    block_.fault("mbarrier: not in the block's shared memory", where);
  }
  const auto state = std::bit_cast<State>(*barrier);
  if (find(barrier) == nullptr) block_.fault("mbarrier: used before it was initialised", where);
  if (state.tag != kTag) block_.fault("mbarrier: its bytes were overwritten", where);
  return state;
}

void Mbarriers::init(std::uint64_t* barrier, unsigned arrivals, Where where) {
  detail::check_aligned(barrier, sizeof(*barrier), "mbarrier: not aligned to 8 bytes", where);
  if (!block_.shared().contains(barrier, sizeof(*barrier))) {
    block_.fault("mbarrier: not in the block's shared memory", where);
  }
  if (arrivals == 0 || arrivals > kMaxArrivals) {
    block_.fault(fmt::format("mbarrier: {} arrivals a phase; 1 to {} are allowed", arrivals, kMaxArrivals), where);
  }
  if (find(barrier) != nullptr) block_.fault("mbarrier: initialised twice", where);
  live_.push_back({.address = barrier});
  *barrier = std::bit_cast<std::uint64_t>(
      State{.expected = arrivals, .outstanding = arrivals, .bytes = 0, .parity = 0, .tag = kTag});
}

// Store the state, after beginning the next phase if this one is complete.
void Mbarriers::store(std::uint64_t* barrier, State state) {
  const bool complete = state.complete();
  if (complete) {
    state.parity ^= 1;
    state.outstanding = state.expected;
  }
  *barrier = std::bit_cast<std::uint64_t>(state);
  if (complete) block_.wake(barrier);
}

void Mbarriers::arrive(std::uint64_t* barrier, std::uint32_t bytes, Where where) {
  State state = checked(barrier, where);
  if (state.outstanding == 0) {
    block_.fault(fmt::format("mbarrier: one arrival more than the {} of this phase, whose copies still miss {} bytes",
                             static_cast<unsigned>(state.expected), static_cast<int>(state.bytes)),
                 where);
  }
  if (bytes > kMaxBytes || state.bytes + static_cast<int>(bytes) > kMaxBytes) {
    block_.fault(fmt::format("mbarrier: more than {} bytes announced in a phase", kMaxBytes), where);
  }
  order::release(phase_sync(barrier, state.parity));
  --state.outstanding;
  state.bytes += static_cast<int>(bytes);
  if (state.never_completes()) {
    block_.fault(fmt::format("mbarrier: {} bytes more have landed than were announced", -static_cast<int>(state.bytes)),
                 where);
  }
  store(barrier, state);
}

void Mbarriers::note_access(std::uint64_t* barrier, bool release, const char* what, Where where) {
  block_.note_access(what, where);
  checked(barrier, where);
  if (!release) return;
  Live& live = *find(barrier);
  Block& by = *running().block;
  live.remote = live.remote || &by != &block_;
  by.release(live.released);
}

void Mbarriers::arrive_from_cluster(std::uint64_t* barrier, bool release, Where where) {
  note_access(barrier, release, "mbarrier.arrive.shared::cluster", where);
  arrive(barrier, 0, where);
}

void Mbarriers::wait(std::uint64_t* barrier, unsigned parity, Scope scope, Where where) {
  if (parity > 1) block_.fault(fmt::format("mbarrier_wait: parity {} is neither 0 nor 1", parity), where);
  if (checked(barrier, where).parity == parity) {
    block_.wait_for(barrier, "mbarrier_wait", where);
    if (checked(barrier, where).parity == parity) {
      block_.fault("mbarrier_wait: the phase completed and the next one too, before this waiting thread could see it",
                   where);
    }
  }
  const Live& live = *find(barrier);
  if (live.remote && scope == Scope::block) {
    block_.fault("mbarrier_wait: other blocks arrive or store here, so it must acquire at the scope of the cluster",
                 where);
  }
  block_.acquire(live.released);
  order::acquire(phase_sync(barrier, parity));
}

void Mbarriers::begin_copy(std::uint64_t* barrier, order::Agent agent, bool release, const char* what, Where where) {
  note_access(barrier, release, what, where);
  order::release(agent, phase_sync(barrier, checked(barrier, where).parity));
}

std::string Mbarriers::complete_copy(std::uint64_t* barrier, std::uint32_t bytes) {
  auto state = std::bit_cast<State>(*barrier);
  if (state.tag != kTag) return "mbarrier: its bytes were overwritten while a copy was in flight";
  if (state.bytes - static_cast<int>(bytes) < -kMaxBytes) return "mbarrier: too many bytes landed unannounced";
  state.bytes -= static_cast<int>(bytes);
  if (state.never_completes()) {
    return fmt::format("mbarrier: {} bytes more have landed than were announced", -static_cast<int>(state.bytes));
  }
  store(barrier, state);
  return {};
}

std::string Mbarriers::outstanding(const void* event) const {
  const auto barrier = std::find_if(live_.begin(), live_.end(), [=](const Live& l) { return l.address == event; });
  if (barrier == live_.end()) return {};
  const auto state = std::bit_cast<State>(*barrier->address);
  return fmt::format("{} of {} arrivals and {} bytes outstanding", static_cast<unsigned>(state.outstanding),
                     static_cast<unsigned>(state.expected), static_cast<int>(state.bytes));
}

namespace detail {

void init_mbarrier(std::uint64_t* barrier, unsigned arrivals, Where where) {
  active("mbarrier.init", where).hopper().mbarriers.init(barrier, arrivals, where);
}

void fence_mbarrier_init(Where where) { active("fence.mbarrier_init", where).cluster().fence_mbarrier_init(); }

void arrive_mbarrier(std::uint64_t* barrier, std::uint32_t bytes, Where where) {
  Block& block = active("mbarrier.arrive", where);
  block.hopper().mbarriers.arrive(barrier, bytes, where);
  block.pause();
}

void wait_mbarrier(std::uint64_t* barrier, unsigned parity, bool cluster_scope, Where where) {
  const auto scope = cluster_scope ? Mbarriers::Scope::cluster : Mbarriers::Scope::block;
  active("mbarrier.try_wait", where).hopper().mbarriers.wait(barrier, parity, scope, where);
}

void arrive_mbarrier_from_cluster(std::uint64_t* barrier, bool release, Where where) {
  Block& block = active("mbarrier.arrive.shared::cluster", where);
  Block* const owner = block.cluster().owner(barrier);
  if (owner == nullptr) block.fault("mbarrier: not in the cluster's shared memory", where);
  owner->hopper().mbarriers.arrive_from_cluster(barrier, release, where);
  block.pause();
}

}  // namespace detail

}  // namespace ladder::simt
