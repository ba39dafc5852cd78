#include "core/simt/block_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "core/simt/block.h"
#include "core/simt/order.h"
#include "core/simt/sanitizer.h"
#include "core/simt/watchdog.h"

namespace ladder::simt {

namespace context = boost::context::detail;

BlockCluster::BlockCluster() = default;
BlockCluster::~BlockCluster() = default;

int BlockCluster::num_stacks() const {
  int count = 0;
  for (const auto& block : blocks_) count += block->num_stacks();
  return count;
}

int BlockCluster::num_threads() const { return size_ * blocks_[0]->num_threads(); }

// --- The schedule

bool BlockCluster::idle() const {
  return std::none_of(blocks_.begin(), blocks_.begin() + size_, [](const auto& block) { return block->can_run(); });
}

bool BlockCluster::let_copies_land(Block& block) {
  try {
    block.let_copies_land();
    return true;
  } catch (...) {
    fail(std::current_exception());
    return false;
  }
}

// NOTE: inlined, because every switch comes through it.
[[gnu::always_inline]] inline Fiber* Block::pick() {
  auto lowest = [](unsigned set) { return std::countr_zero(set); };
  auto highest = [](unsigned set) { return 31 - std::countl_zero(set); };
  auto any = [&](unsigned set) {  // first member at or after a random position: fast, and any member may be picked
    const int start = static_cast<int>(random_.next() >> 59);
    return (std::countr_zero(std::rotr(set, start)) + start) % 32;
  };
  int warp = 0;
  int lane = 0;
  switch (schedule_) {
    case Schedule::ascending:
      warp = lowest(ready_warps_);
      lane = lowest(warps_[warp].ready);
      break;
    case Schedule::descending:
      warp = highest(ready_warps_);
      lane = highest(warps_[warp].ready);
      break;
    case Schedule::random:
    case Schedule::late:
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

// Pick the next block of a cluster of several; null if no block can run.
Block* BlockCluster::pick_block() {
  int ready[kMaxClusterBlocks];
  int num_ready = 0;
  for (int r = 0; r < size_; ++r) {
    if (blocks_[r]->can_run()) ready[num_ready++] = r;
  }
  if (num_ready == 0) return nullptr;
  auto any = [&] { return ready[random_.next() % num_ready]; };
  int rank = 0;
  switch (kernel_->options.schedule) {
    case Schedule::ascending:
      rank = ready[0];
      break;
    case Schedule::descending:
      rank = ready[num_ready - 1];
      break;
    case Schedule::random:
    case Schedule::late:
      rank = any();
      break;
    case Schedule::greedy: {
      // The current warp runs as far as it can. Then, each half of the time, its block goes on or a random block of the
      // cluster does: some faults need a block that is far ahead, others a warp that is far ahead of its own block.
      const Block& block = *blocks_[greedy_block_];
      const bool stay = block.can_stay() || (block.can_run() && random_.next() % 2 == 0);
      rank = greedy_block_ = stay ? greedy_block_ : any();
      break;
    }
  }
  return blocks_[rank].get();
}

Fiber* BlockCluster::pick() {
  if (overdue_ != 0) [[unlikely]] {
    fail_overdue();
    return nullptr;
  }
  for (int r = 0; r < size_; ++r) {
    if (blocks_[r]->copies_in_flight() && !let_copies_land(*blocks_[r])) return nullptr;
  }
  Block* const block = size_ == 1 ? blocks_[0].get() : pick_block();
  if (block && block->can_run()) return block->pick();
  return end_grid_dependency() || wake_sleepers() ? pick() : nullptr;
}

bool BlockCluster::wake_sleepers() {
  if (!any_asleep_) return false;
  any_asleep_ = false;
  for (int r = 0; r < size_; ++r) blocks_[r]->wake(&any_asleep_);
  return true;
}

// --- Switching

// Entry point of a fiber. Never returns: its last action is a switch away.
void BlockCluster::enter(context::transfer_t from) {
  BlockCluster& cluster = *static_cast<BlockCluster*>(from.data);
  Fiber& self = running();
  Side& left = *cluster.leaving_;
  left.context = from.fctx;
  sanitizer::end_switch(nullptr, &left.stack_bottom, &left.stack_bytes);
  try {
    cluster.kernel_->body(cluster.kernel_->context);
    self.block->end(self);
  } catch (...) {
    cluster.fail(std::current_exception());
  }
  self.over = true;
  cluster.leave(self);
}

void BlockCluster::abandon(Fiber& fiber) {
  fiber.over = true;
  leave(fiber);
}

void BlockCluster::leave(Side& from) {
  Fiber* const next = error_ ? nullptr : pick();
  if (watched_) [[unlikely]]
    set_memory_open(next == nullptr || next->waited);
  if (next == &from) return;
  detail::current = next;
  switch_sides(from, next ? static_cast<Side&>(*next) : scheduler_);
}

void BlockCluster::switch_sides(Side& from, Side& to) {
  ++num_switches_;
  leaving_ = &from;
  sanitizer::begin_switch(from.over ? nullptr : &from.fake_stack, to.stack_bottom, to.stack_bytes);
  const context::transfer_t back = context::jump_fcontext(to.context, this);
  leaving_->context = back.fctx;
  sanitizer::end_switch(from.fake_stack, nullptr, nullptr);
}

// --- A cluster from beginning to end

void BlockCluster::run(const Kernel& kernel, uint3 cluster_idx, bool watched) {
  const dim3 shape = kernel.launch.cluster;
  kernel_ = &kernel;
  error_ = nullptr;
  seconds_ = 0;
  overdue_ = 0;
  watched_ = watched;
  dependency_over_ = false;
  any_asleep_ = false;
  size_ = static_cast<int>(shape.x * shape.y * shape.z);
  barrier_ = {};
  grid_barriers_.clear();
  // Placement of static shared variables: differs between neighbouring clusters, and for a launch of one cluster
  // between the first two schedules.
  const unsigned parity =
      cluster_idx.x + cluster_idx.y + cluster_idx.z + static_cast<unsigned>(kernel.options.schedule);
  placement_ = parity % 2 == 0 ? SharedMemory::Placement::barely_aligned : SharedMemory::Placement::at_page_end;
  while (static_cast<int>(blocks_.size()) < size_) blocks_.push_back(std::make_unique<Block>(*this));
  for (int r = 0; r < size_; ++r) {
    const unsigned rank = static_cast<unsigned>(r);
    const uint3 block_idx{cluster_idx.x * shape.x + rank % shape.x, cluster_idx.y * shape.y + rank / shape.x % shape.y,
                          cluster_idx.z * shape.z + rank / shape.x / shape.y};
    blocks_[r]->begin(r, block_idx, &BlockCluster::enter);
  }
  if (size_ > 1) {
    random_ = Random(blocks_[0]->random().next());
    greedy_block_ = static_cast<int>(random_.next() % size_);
  }

  order::begin_cluster(*this, cluster_idx);
  leave(scheduler_);
  order::end_cluster();
  const bool over = std::all_of(blocks_.begin(), blocks_.begin() + size_, [](const auto& b) { return b->over(); });
  if (!over && !error_) error_ = std::make_exception_ptr(Fault("deadlock: " + waiting() + replay()));
  if (error_) {
    for (int r = 0; r < size_; ++r) blocks_[r]->abandon_stacks();
    std::rethrow_exception(error_);
  }
  for (int r = 0; r < size_; ++r) {
    const std::string damage = blocks_[r]->shared().damage();
    if (!damage.empty()) throw Fault(fmt::format("{} of block {}{}", damage, blocks_[r]->name(), replay()));
  }
}

// --- Reports

std::string BlockCluster::report(const Fiber& fiber, const std::string& what) const {
  return what + fiber.block->at(fiber) + replay();
}

// Fail a cluster that has run for too long. The running thread is about to wait somewhere, not for the first time.
void BlockCluster::fail_overdue() {
  const Fiber& fiber = running();
  const Where where = fiber.block->last_wait(fiber);
  fail<Endless>(fiber,
                fmt::format("{}:{}: the block has run for {} s and still passes this: it loops for ever ({} sets "
                            "how long is too long)",
                            where.file, where.line, seconds_, kWatchdogVariable));
}

std::string BlockCluster::replay() const { return fmt::format(" [schedule {}]", kernel_->options.str()); }

// Report of a deadlock: "32 threads, first (0,0,0), wait in ...; 0 threads have ended; block (0,0,0) | ...". Blocks
// that wait alike share an entry.
std::string BlockCluster::waiting() const {
  std::map<std::string, std::string> blocks;
  for (int r = 0; r < size_; ++r) {
    std::string& names = blocks[blocks_[r]->waiting()];
    names += (names.empty() ? "" : " ") + blocks_[r]->name();
  }
  std::string text;
  for (const auto& [what, names] : blocks) {
    text += fmt::format("{}{}; block {}", text.empty() ? "" : " | ", what, names);
  }
  return text;
}

}  // namespace ladder::simt
