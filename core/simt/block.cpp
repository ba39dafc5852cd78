#include "core/simt/block.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/simt/order.h"
#include "core/simt/sanitizer.h"

namespace ladder::simt {

Block::Block(BlockCluster& cluster) : cluster_(cluster), warps_(new Warp[kMaxWarps]) {}
Block::~Block() = default;

// --- Beginning and end

void Block::begin(int rank, uint3 block_idx, void (*enter)(boost::context::detail::transfer_t)) {
  const Launch& launch = cluster_.kernel().launch;
  const dim3 block = launch.block;
  const dim3 grid = launch.grid;
  schedule_ = options().schedule;
  rank_ = rank;
  block_idx_ = block_idx;
  num_ended_ = 0;
  barrier_ = {};
  clock_ = {};
  clock_.of[rank] = 1;
  std::fill(std::begin(accesses_), std::end(accesses_), Access{});
  const std::uint64_t linear_block =
      block_idx.x + std::uint64_t{grid.x} * (block_idx.y + std::uint64_t{grid.y} * block_idx.z);
  random_ = Random(Random(options().seed).next() + linear_block);
  shared_.begin_block(cluster_.kernel().number, launch.dynamic_smem, cluster_.placement());

  const int num_threads = static_cast<int>(block.x * block.y * block.z);
  hopper_.begin_block(num_threads);
  if (stacks_dirty_ && num_threads_ > 0) {
    for (int i = 0; i < num_threads_; ++i) sanitizer::unpoison(stacks_.bottom(i), stacks_.usable_bytes());
    stacks_dirty_ = false;
  }
  stacks_.reserve(num_threads);
  if (!fibers_) fibers_.reset(new Fiber[kMaxThreads]);
  num_threads_ = num_threads;
  num_warps_ = (num_threads + kWarpSize - 1) / kWarpSize;

  ready_warps_ = num_warps_ == 32 ? detail::kFullMask : (1u << num_warps_) - 1;
  greedy_warp_ = static_cast<int>(random_.next() % num_warps_);
  for (int w = 0; w < num_warps_; ++w) {
    Warp& warp = warps_[w];
    const int lanes = std::min(kWarpSize, num_threads - w * kWarpSize);
    warp.existing = lanes == kWarpSize ? detail::kFullMask : (1u << lanes) - 1;
    warp.ready = warp.existing;
    warp.waiting = 0;
    warp.blocked = 0;
    warp.ended = 0;
  }
  uint3 thread_idx{0, 0, 0};
  for (int i = 0; i < num_threads; ++i) {
    Fiber& fiber = fibers_[i];
    fiber.thread_idx = thread_idx;
    fiber.block_idx = block_idx;
    fiber.block_dim = block;
    fiber.grid_dim = grid;
    fiber.cluster_rank = launch.cooperative ? 0 : static_cast<unsigned>(rank);
    fiber.cluster_size = launch.cooperative ? 1 : static_cast<unsigned>(cluster_.size());
    fiber.lane = i % kWarpSize;
    fiber.dynamic_smem = shared_.dynamic();
    fiber.block = this;
    fiber.index = i;
    fiber.ended = false;
    fiber.over = false;
    fiber.waited = !launch.overlaps_previous;
    fiber.takes_flags = false;
    fiber.collective = nullptr;
    fiber.event = nullptr;
    fiber.arrived = false;
    fiber.first_copy = fiber.end_copy = fiber.num_groups = 0;
    fiber.stack_bottom = stacks_.bottom(i);
    fiber.stack_bytes = stacks_.usable_bytes();
    fiber.context = boost::context::detail::make_fcontext(stacks_.top(i), stacks_.top(i) - stacks_.bottom(i), enter);
    if (++thread_idx.x == block.x) {
      thread_idx.x = 0;
      if (++thread_idx.y == block.y) {
        thread_idx.y = 0;
        ++thread_idx.z;
      }
    }
  }
}

void Block::end(Fiber& fiber) {
  if (barrier_.arrived > 0) {
    fault(fmt::format("__syncthreads: thread {} ended while {} threads wait here", describe(fiber), barrier_.arrived),
          barrier_.where);
  }
  stop(warps_[fiber.index / kWarpSize], fiber.lane);
  warps_[fiber.index / kWarpSize].ended |= 1u << fiber.lane;
  fiber.ended = true;
  ++num_ended_;
  cluster_.note_end(fiber);
  if (over()) check_end();
}

// Throws Fault for unfinished asynchronous operations, and for other blocks' accesses to this block's shared memory
// that nothing orders before its end.
void Block::check_end() const {
  hopper_.check_end();
  for (int other = 0; other < cluster_.size(); ++other) {
    const Access& access = accesses_[other];
    if (clock_.of[other] >= access.time) continue;
    fault(
        fmt::format("{}: block {} ended, and nothing orders this access of block {} to its shared memory before that; "
                    "both need a cluster barrier after it",
                    access.what, name(), cluster_.block(other).name()),
        access.where);
  }
}

// Mark a lane as not runnable until make_ready().
void Block::stop(Warp& warp, unsigned lane) {
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << (&warp - warps_.get()));
}

void Block::make_ready(Warp& warp, unsigned lanes) {
  warp.ready |= lanes;
  ready_warps_ |= 1u << (&warp - warps_.get());
}

// --- Waiting for others

void Block::join(const Collective& collective, unsigned mask, void* operands, Where where) {
  Fiber& self = running();
  Warp& warp = warps_[self.index / kWarpSize];
  const unsigned bit = 1u << self.lane;
  if ((mask & bit) == 0)
    fault(fmt::format("{}: mask {:#x} does not name the calling lane", collective.name, mask), where);
  mask &= warp.existing;
  if ((mask & warp.ended) != 0) {
    fault(fmt::format("{}: mask names lanes {:#x}, which have ended", collective.name, mask & warp.ended), where);
  }
  self.collective = &collective;
  self.mask = mask;
  self.operands = operands;
  self.where = where;
  warp.waiting |= bit;
  stop(warp, self.lane);

  // The collective is ordered by an address of the mask's lowest lane. Two are used in turn, since a lane may reach the
  // next collective before the others have left this one.
  const int leader = std::countr_zero(mask);
  char* sync = &warp.sync[warp.sync_parity >> leader & 1][leader];
  if (collective.orders_memory) order::release(sync);
  if ((warp.waiting & mask) == mask) try_complete(warp, self.lane);
  cluster_.leave(self);
  if (collective.orders_memory) order::acquire(sync);
}

// Complete the collective of `lane`, if all lanes of its mask wait in it. All of them wait somewhere; if some wait
// elsewhere, others may yet release them, and lanes that are never released end as a reported deadlock.
void Block::try_complete(Warp& warp, unsigned lane) {
  Fiber* const lanes = &fibers_[(&warp - warps_.get()) * kWarpSize];
  const Fiber& self = lanes[lane];
  void* operands[kWarpSize];
  for (unsigned remaining = self.mask; remaining != 0; remaining &= remaining - 1) {
    const int l = std::countr_zero(remaining);
    const Fiber& other = lanes[l];
    if (other.collective != self.collective || other.mask != self.mask) return;
    if (self.collective->aligned && !(other.where == self.where)) return;
    operands[l] = other.operands;
  }
  if (self.collective->complete) self.collective->complete(operands, self.mask);
  for (unsigned remaining = self.mask; remaining != 0; remaining &= remaining - 1)
    lanes[std::countr_zero(remaining)].collective = nullptr;
  warp.waiting &= ~self.mask;
  warp.sync_parity ^= 1u << std::countr_zero(self.mask);
  make_ready(warp, self.mask);
}

int Block::join_block(detail::Reduction reduction, int predicate, Where where) {
  Fiber& self = running();
  if (num_ended_ > 0) {
    fault(fmt::format("__syncthreads: {} of the block's {} threads ended before it", num_ended_, num_threads_), where);
  }
  if (barrier_.arrived == 0) {
    barrier_.reduction = reduction;
    barrier_.where = where;
    barrier_.first = &self;
    barrier_.count = 0;
  } else if (!(barrier_.where == where) || barrier_.reduction != reduction) {
    fault(fmt::format("divergent barrier: thread {} waits in __syncthreads at {}:{}, the caller here",
                      describe(*barrier_.first), barrier_.where.file, barrier_.where.line),
          where);
  }
  barrier_.count += predicate != 0;
  char* sync = &barrier_.sync[barrier_.generation % 2];
  order::release(sync);
  stop(warps_[self.index / kWarpSize], self.lane);
  if (++barrier_.arrived == num_threads_) {
    switch (reduction) {
      case detail::Reduction::none:
        barrier_.result = 0;
        break;
      case detail::Reduction::count:
        barrier_.result = barrier_.count;
        break;
      case detail::Reduction::all:
        barrier_.result = barrier_.count == num_threads_;
        break;
      case detail::Reduction::any:
        barrier_.result = barrier_.count > 0;
        break;
    }
    barrier_.arrived = 0;
    ++barrier_.generation;
    for (int w = 0; w < num_warps_; ++w) make_ready(warps_[w], warps_[w].existing);
  }
  cluster_.leave(self);
  order::acquire(sync);
  return barrier_.result;
}

void Block::wait_for(const void* event, const char* what, Where where) {
  Fiber& self = running();
  Warp& warp = warps_[self.index / kWarpSize];
  self.event = event;
  self.event_name = what;
  self.where = where;
  warp.blocked |= 1u << self.lane;
  stop(warp, self.lane);
  cluster_.leave(self);
}

void Block::pause() {
  if (schedule_ == Schedule::late || (schedule_ == Schedule::random && random_.next() % 2 == 0)) {
    cluster_.leave(running());
  }
}

void Block::sleep(Where where) {
  if (schedule_ == Schedule::random || schedule_ == Schedule::late) return cluster_.leave(running());
  wait_for(cluster_.add_sleeper(), "__nanosleep", where);
}

void Block::wake(const void* event) {
  for (int w = 0; w < num_warps_; ++w) {
    Warp& warp = warps_[w];
    unsigned woken = 0;
    for (unsigned remaining = warp.blocked; remaining != 0; remaining &= remaining - 1) {
      Fiber& fiber = fibers_[w * kWarpSize + std::countr_zero(remaining)];
      if (fiber.event != event) continue;
      fiber.event = nullptr;
      woken |= 1u << fiber.lane;
    }
    warp.blocked &= ~woken;
    if (woken != 0) make_ready(warp, woken);
  }
}

int Block::thread() const { return running().index; }

bool Block::in_dynamic(const void* address, std::size_t bytes) const {
  return address >= shared_.dynamic() && shared_.contains(address, bytes);
}

unsigned Block::active_mask() const {
  const Warp& warp = warps_[running().index / kWarpSize];
  return warp.existing & ~warp.ended;
}

void Block::let_copies_land() {
  while (hopper_.copies.busy() && !over() && hopper_.copies.take_turn(cluster_.idle())) hopper_.copies.land_one();
}

// --- cp.async

void Block::begin_copy(const detail::Copy& copy, Where where) {
  Fiber& self = running();
  if (self.end_copy - self.first_copy == Fiber::kMaxCopies) {
    fault(fmt::format("cp.async: {} copies in flight and none was ever waited for", Fiber::kMaxCopies), where);
  }
  if (!self.copies) self.copies.reset(new Fiber::InFlight[Fiber::kMaxCopies]);
  self.copies[self.end_copy++ % Fiber::kMaxCopies] = {copy, self.num_groups};
}

void Block::commit_copies() { ++running().num_groups; }

const detail::Copy* Block::land_copy(int pending) {
  Fiber& self = running();
  if (self.first_copy == self.end_copy) return nullptr;
  const Fiber::InFlight& oldest = self.copies[self.first_copy % Fiber::kMaxCopies];
  if (oldest.group + pending >= self.num_groups) return nullptr;
  ++self.first_copy;
  return &oldest.copy;
}

// --- The other blocks of the cluster

void* Block::shared_variable(const char* const* key, std::size_t bytes, std::size_t alignment) {
  if (void* known = shared_.find(key)) return known;
  // Add the variable to all blocks at once: it has one offset in the whole cluster, whichever block reaches it first.
  for (int r = 0; r < cluster_.size(); ++r) cluster_.block(r).shared_.add(key, bytes, alignment);
  return shared_.find(key);
}

void Block::note_access(const char* what, Where where) {
  Block& by = *running().block;
  if (&by == this) return;
  if (over()) {
    by.fault(fmt::format("{}: block {} of the cluster has ended, and with it its shared memory", what, name()), where);
  }
  if (by.clock_.of[rank_] == 0) {
    by.fault(fmt::format("{}: block {} is not known to have started; that takes a cluster barrier first", what, name()),
             where);
  }
  accesses_[by.rank_] = {.time = by.clock_.of[by.rank_], .what = what, .where = where};
}

void Block::release(ClusterClock& clock) {
  clock.merge(clock_);
  ++clock_.of[rank_];
}

// --- Reports

std::string Block::name() const { return fmt::format("({},{},{})", block_idx_.x, block_idx_.y, block_idx_.z); }

std::string Block::describe(const Fiber& fiber) const {
  return fmt::format("({},{},{})", fiber.thread_idx.x, fiber.thread_idx.y, fiber.thread_idx.z);
}

// Report a fault of the running thread, even if `this` is another block.
void Block::fault(const std::string& what, Where where) const {
  const Fiber& self = running();
  self.block->fault(what, where, self.index);
}

void Block::fault(const std::string& what, Where where, int thread) const {
  throw Fault(fmt::format("{}:{}: {}{}{}", where.file, where.line, what, at(fibers_[thread]), cluster_.replay()));
}

std::string Block::at(const Fiber& fiber) const {
  return fmt::format("; thread {} of block {}", describe(fiber), name());
}

// "31 threads, first (0,0,0), wait in __shfl_sync with mask 0xffffffff at a.cu:7; ...; 1 thread has ended"
std::string Block::waiting() const {
  struct Group {
    const Fiber* first;
    int count;
  };
  constexpr int kMaxGroups = 6;
  Group groups[kMaxGroups];
  int num_groups = 0;
  auto same = [](const Fiber& a, const Fiber& b) {
    if (a.collective != b.collective || a.event != b.event) return false;
    if (a.event != nullptr) return a.where == b.where;
    return a.collective == nullptr || (a.mask == b.mask && a.where == b.where);
  };
  for (int i = 0; i < num_threads_; ++i) {
    const Fiber& fiber = fibers_[i];
    if (fiber.ended) continue;
    int g = 0;
    while (g < num_groups && !same(*groups[g].first, fiber)) ++g;
    if (g == num_groups) {
      if (g == kMaxGroups) continue;
      groups[num_groups++] = {&fiber, 0};
    }
    ++groups[g].count;
  }
  std::string text;
  for (int g = 0; g < num_groups; ++g) {
    const Fiber& fiber = *groups[g].first;
    const Where where = last_wait(fiber);
    text += fmt::format("{} threads, first {}, wait in {}", groups[g].count, describe(fiber),
                        fiber.collective ? fiber.collective->name
                        : fiber.event    ? fiber.event_name
                                         : "__syncthreads");
    if (fiber.collective) text += fmt::format(" with mask {:#x}", fiber.mask);
    text += fmt::format(" at {}:{}", where.file, where.line);
    std::string why = hopper_.mbarriers.outstanding(fiber.event);
    if (why.empty()) why = cluster_.outstanding(fiber.event);
    if (!why.empty()) text += " (" + why + ")";
    text += "; ";
  }
  return text + fmt::format("{} threads have ended", num_ended_);
}

}  // namespace ladder::simt
