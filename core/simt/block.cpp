#include "core/simt/block.h"

#include <fmt/format.h>

#include "core/simt/sanitizer.h"

namespace ladder::simt {

namespace context = boost::context::detail;

struct Block::Fiber : detail::Thread, Block::Side {
  struct InFlight {
    detail::Copy copy;
    unsigned group;
  };

  Block* block = nullptr;
  void* tsan_in_turn[2] = {};
  int index = 0;  // linear thread index
  bool ended = false;

  // The warp collective it waits in, if any.
  const Collective* collective = nullptr;
  unsigned mask = 0;
  void* operands = nullptr;
  Where where;

  // The event it waits for, if any, and what it calls that.
  const void* event = nullptr;
  const char* event_name = nullptr;

  // Its cp.async copies: a ring of those in flight. The group that is still open has the number num_groups.
  std::unique_ptr<InFlight[]> copies{new InFlight[kMostCopies]};
  unsigned first_copy = 0;
  unsigned end_copy = 0;
  unsigned num_groups = 0;
};

struct Block::Warp {
  unsigned existing = 0;  // lanes that the block has
  unsigned ready = 0;     // can run
  unsigned waiting = 0;   // in a warp collective
  unsigned blocked = 0;   // for an event
  unsigned ended = 0;
  unsigned sync_parity = 0;      // a bit for each lane that leads a mask, see join()
  char sync[2][kWarpSize] = {};  // what ThreadSanitizer orders by
};

Block::Block() : warps_(new Warp[kMostWarps]) {}
Block::~Block() = default;

Block::Fiber& Block::running() const { return static_cast<Fiber&>(*detail::current); }

// --- Switching

// Where a fiber begins. It never returns: the last thing it does is to go elsewhere for good.
void Block::enter(context::transfer_t from) {
  Block& block = *static_cast<Block*>(from.data);
  Fiber& self = block.running();
  Side& left = *block.leaving_;
  left.context = from.fctx;
  sanitizer::end_switch(nullptr, &left.stack_bottom, &left.stack_bytes);
  sanitizer::acquire(&block.start_);
  try {
    block.kernel_->body(block.kernel_->context);
    block.end(self);
  } catch (...) {
    block.error_ = std::current_exception();
  }
  self.over = true;
  block.leave(self);
}

// Lets the next thread that can run go on, or the scheduler if there is none or the block has failed. Returns when it is
// the caller's turn again.
void Block::leave(Side& from) {
  Fiber* const next = error_ ? nullptr : pick();
  if (next == &from) return;
  detail::current = next;
  switch_sides(from, next ? static_cast<Side&>(*next) : scheduler_);
}

void Block::switch_sides(Side& from, Side& to) {
  leaving_ = &from;
  sanitizer::begin_switch(from.over ? nullptr : &from.fake_stack, to.stack_bottom, to.stack_bytes);
  sanitizer::switch_to_fiber(to.tsan);
  const context::transfer_t back = context::jump_fcontext(to.context, this);
  leaving_->context = back.fctx;
  sanitizer::end_switch(from.fake_stack, nullptr, nullptr);
}

// --- The schedule

Block::Fiber* Block::pick() {
  if (hopper_.copies.busy()) let_copies_land();
  if (ready_warps_ == 0 || error_) return nullptr;
  auto lowest = [](unsigned set) { return std::countr_zero(set); };
  auto highest = [](unsigned set) { return 31 - std::countl_zero(set); };
  auto any = [&](unsigned set) {  // the next member from a random place on: quick, and every member has its chance
    const int start = static_cast<int>(random_.next() >> 59);
    return (std::countr_zero(std::rotr(set, start)) + start) % 32;
  };
  int warp = 0;
  int lane = 0;
  switch (kernel_->options.schedule) {
    case Schedule::ascending:
      warp = lowest(ready_warps_);
      lane = lowest(warps_[warp].ready);
      break;
    case Schedule::descending:
      warp = highest(ready_warps_);
      lane = highest(warps_[warp].ready);
      break;
    case Schedule::random:
      warp = any(ready_warps_);
      lane = any(warps_[warp].ready);
      break;
    case Schedule::greedy:
      if ((ready_warps_ >> greedy_warp_ & 1) == 0) greedy_warp_ = any(ready_warps_);
      warp = greedy_warp_;
      lane = any(warps_[warp].ready);
      break;
  }
  return &fibers_[warp * kWarpSize + lane];
}

void Block::let_copies_land() {
  try {
    while (hopper_.copies.busy() && num_ended_ < num_threads_ && hopper_.copies.take_turn(ready_warps_ == 0)) {
      hopper_.copies.land_one();
    }
  } catch (...) {
    error_ = std::current_exception();
    sanitizer::release(kernel_->end);  // by a thread that may have ended
  }
}

void Block::run(const Kernel& kernel, uint3 block_idx) {
  const dim3 block = kernel.launch.block;
  const dim3 grid = kernel.launch.grid;
  kernel_ = &kernel;
  block_idx_ = block_idx;
  num_ended_ = 0;
  error_ = nullptr;
  barrier_ = {};
  const std::uint64_t linear_block =
      block_idx.x + std::uint64_t{grid.x} * (block_idx.y + std::uint64_t{grid.y} * block_idx.z);
  random_ = Random(Random(kernel.options.seed).next() + linear_block);
  shared_.begin_block(kernel.launch.dynamic_smem);

  const int num_threads = static_cast<int>(block.x * block.y * block.z);
  hopper_.begin_block(num_threads);
  if (stacks_dirty_ && num_threads_ > 0) {
    for (int i = 0; i < num_threads_; ++i) sanitizer::unpoison(stacks_.bottom(i), stacks_.usable_bytes());
    stacks_dirty_ = false;
  }
  stacks_.reserve(num_threads);
  if (!fibers_) fibers_.reset(new Fiber[kMostThreads]);
  num_threads_ = num_threads;
  num_warps_ = (num_threads + kWarpSize - 1) / kWarpSize;
  scheduler_.tsan = sanitizer::current_fiber();
  turn_ ^= 1;

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
    fiber.lane = i % kWarpSize;
    fiber.dynamic_smem = shared_.dynamic();
    fiber.block = this;
    fiber.index = i;
    fiber.ended = false;
    fiber.over = false;
    fiber.collective = nullptr;
    fiber.event = nullptr;
    fiber.first_copy = fiber.end_copy = fiber.num_groups = 0;
    sanitizer::forget(stacks_.bottom(i), stacks_.usable_bytes());
    // Two sets of ThreadSanitizer's fibers, used in turn: creating one is dear, and blocks that follow each other must not
    // seem to be the work of the same threads, or no race between blocks would show.
    void*& tsan = fiber.tsan_in_turn[turn_];
    if (tsan == nullptr) tsan = sanitizer::create_fiber();
    fiber.tsan = tsan;
    fiber.stack_bottom = stacks_.bottom(i);
    fiber.stack_bytes = stacks_.usable_bytes();
    fiber.context = context::make_fcontext(stacks_.top(i), stacks_.top(i) - stacks_.bottom(i), &Block::enter);
    if (++thread_idx.x == block.x) {
      thread_idx.x = 0;
      if (++thread_idx.y == block.y) {
        thread_idx.y = 0;
        ++thread_idx.z;
      }
    }
  }

  sanitizer::release(&start_);
  leave(scheduler_);
  if (num_ended_ < num_threads_ && !error_) {
    error_ = std::make_exception_ptr(Fault("deadlock: " + waiting() + replay()));
  }
  check_end();
  for (int i = 0; i < num_threads; ++i) {
    Fiber& fiber = fibers_[i];
    if (fiber.ended) continue;
    sanitizer::release_as(fiber.tsan, kernel.end);
    sanitizer::destroy_fiber(fiber.tsan);
    fiber.tsan_in_turn[turn_] = nullptr;
  }
  if (error_) {
    stacks_dirty_ = true;
    std::rethrow_exception(error_);
  }
  if (const std::string damage = shared_.damage(); !damage.empty()) {
    throw Fault(fmt::format("{} of block ({},{},{}){}", damage, block_idx.x, block_idx.y, block_idx.z, replay()));
  }
}

// What the threads left behind in the asynchronous units.
void Block::check_end() {
  if (error_) return;
  try {
    hopper_.check_end();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void Block::end(Fiber& fiber) {
  if (barrier_.arrived > 0) {
    fault(fmt::format("__syncthreads: thread {} ended while {} threads wait here", describe(fiber), barrier_.arrived),
          barrier_.where);
  }
  fiber.ended = true;
  ++num_ended_;
  Warp& warp = warps_[fiber.index / kWarpSize];
  warp.ended |= 1u << fiber.lane;
  warp.ready &= ~(1u << fiber.lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << (fiber.index / kWarpSize));
  sanitizer::release(kernel_->end);
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
  warp.ready &= ~bit;
  if (warp.ready == 0) ready_warps_ &= ~(1u << (&warp - warps_.get()));

  // Lanes of one mask agree on its lowest lane, so its name serves as the place to meet. Two places, used in turn: a lane
  // may reach the next collective before the others have left this one.
  const int leader = std::countr_zero(mask);
  char* sync = &warp.sync[warp.sync_parity >> leader & 1][leader];
  if (collective.orders_memory) sanitizer::release(sync);
  if ((warp.waiting & mask) == mask) try_complete(warp, self.lane);
  leave(self);
  if (collective.orders_memory) sanitizer::acquire(sync);
}

// All lanes of `lane`'s mask wait somewhere. If they wait for the same thing, it happens; if not, some of them may yet be
// released by others, and what never is ends as a reported deadlock.
void Block::try_complete(Warp& warp, unsigned lane) {
  Fiber* const lanes = &fibers_[(&warp - warps_.get()) * kWarpSize];
  const Fiber& self = lanes[lane];
  void* operands[kWarpSize];
  for (unsigned rest = self.mask; rest != 0; rest &= rest - 1) {
    const int l = std::countr_zero(rest);
    const Fiber& other = lanes[l];
    if (other.collective != self.collective || other.mask != self.mask) return;
    if (self.collective->aligned && !(other.where == self.where)) return;
    operands[l] = other.operands;
  }
  if (self.collective->complete) self.collective->complete(operands, self.mask);
  for (unsigned rest = self.mask; rest != 0; rest &= rest - 1) lanes[std::countr_zero(rest)].collective = nullptr;
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
  sanitizer::release(sync);
  Warp& own = warps_[self.index / kWarpSize];
  own.ready &= ~(1u << self.lane);
  if (own.ready == 0) ready_warps_ &= ~(1u << (self.index / kWarpSize));
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
  leave(self);
  sanitizer::acquire(sync);
  return barrier_.result;
}

void Block::wait_for(const void* event, const char* what, Where where) {
  Fiber& self = running();
  Warp& warp = warps_[self.index / kWarpSize];
  self.event = event;
  self.event_name = what;
  self.where = where;
  warp.blocked |= 1u << self.lane;
  warp.ready &= ~(1u << self.lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << (self.index / kWarpSize));
  leave(self);
}

void Block::wake(const void* event) {
  for (int w = 0; w < num_warps_; ++w) {
    Warp& warp = warps_[w];
    unsigned woken = 0;
    for (unsigned rest = warp.blocked; rest != 0; rest &= rest - 1) {
      Fiber& fiber = fibers_[w * kWarpSize + std::countr_zero(rest)];
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

// --- cp.async

void Block::begin_copy(const detail::Copy& copy, Where where) {
  Fiber& self = running();
  if (self.end_copy - self.first_copy == kMostCopies) {
    fault(fmt::format("cp.async: {} copies in flight and none was ever waited for", kMostCopies), where);
  }
  self.copies[self.end_copy++ % kMostCopies] = {copy, self.num_groups};
}

void Block::commit_copies() { ++running().num_groups; }

const detail::Copy* Block::land_copy(int pending) {
  Fiber& self = running();
  if (self.first_copy == self.end_copy) return nullptr;
  const Fiber::InFlight& oldest = self.copies[self.first_copy % kMostCopies];
  if (oldest.group + pending >= self.num_groups) return nullptr;
  ++self.first_copy;
  return &oldest.copy;
}

// --- Reports

std::string Block::describe(const Fiber& fiber) const {
  return fmt::format("({},{},{})", fiber.thread_idx.x, fiber.thread_idx.y, fiber.thread_idx.z);
}

std::string Block::replay() const { return fmt::format(" [schedule {}]", kernel_->options.str()); }

void Block::fault(const std::string& what, Where where) const { fault(what, where, running().index); }

void Block::fault(const std::string& what, Where where, int thread) const {
  throw Fault(fmt::format("{}:{}: {}; thread {} of block ({},{},{}){}", where.file, where.line, what,
                          describe(fibers_[thread]), block_idx_.x, block_idx_.y, block_idx_.z, replay()));
}

// "31 threads, first (0,0,0), wait in __shfl_sync with mask 0xffffffff at a.cu:7; ...; 1 thread has ended"
std::string Block::waiting() const {
  struct Group {
    const Fiber* first;
    int count;
  };
  constexpr int kMostGroups = 6;
  Group groups[kMostGroups];
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
      if (g == kMostGroups) continue;
      groups[num_groups++] = {&fiber, 0};
    }
    ++groups[g].count;
  }
  std::string text;
  for (int g = 0; g < num_groups; ++g) {
    const Fiber& fiber = *groups[g].first;
    const Where& where = fiber.collective || fiber.event ? fiber.where : barrier_.where;
    text += fmt::format("{} threads, first {}, wait in {}", groups[g].count, describe(fiber),
                        fiber.collective ? fiber.collective->name
                        : fiber.event    ? fiber.event_name
                                         : "__syncthreads");
    if (fiber.collective) text += fmt::format(" with mask {:#x}", fiber.mask);
    text += fmt::format(" at {}:{}", where.file, where.line);
    if (const std::string why = hopper_.mbarriers.outstanding(fiber.event); !why.empty()) text += " (" + why + ")";
    text += "; ";
  }
  return text +
         fmt::format("{} threads have ended; block ({},{},{})", num_ended_, block_idx_.x, block_idx_.y, block_idx_.z);
}

}  // namespace ladder::simt
