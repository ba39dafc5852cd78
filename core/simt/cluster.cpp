// Clusters, as cluster.h documents them.
#include "core/simt/cluster.h"

#include <fmt/format.h>

#include "core/simt/block.h"
#include "core/simt/order.h"

namespace ladder::simt {

// --- The cluster's barrier

// A GPU does not wait for threads that have ended (PTX ISA 9.7.13.4), so the barrier would order nothing for them; here it
// is against the rules, as it is for __syncthreads.
void BlockCluster::arrive(bool release, Where where) {
  Fiber& self = running();
  Block& block = *self.block;
  if (kernel_->launch.cooperative) block.fault("barrier.cluster: a cooperative grid has no clusters", where);
  if (self.arrived) block.fault("barrier.cluster.arrive: the thread arrived before and did not wait since", where);
  if (barrier_.num_absent > 0) {
    block.fault(fmt::format("barrier.cluster.arrive: {} of the cluster's {} threads ended before it",
                            barrier_.num_absent, num_threads()),
                where);
  }
  self.arrived = true;
  self.arrived_phase = barrier_.phase;
  barrier_.where = where;
  if (release) order::release(&barrier_.sync[barrier_.phase % 2]);
  block.release(barrier_.released[barrier_.phase % 2]);
  if (++barrier_.num_arrived < num_threads()) return;
  ++barrier_.phase;
  barrier_.num_arrived = 0;
  barrier_.released[barrier_.phase % 2] = {};
  for (int r = 0; r < size_; ++r) {
    barrier_.num_absent += blocks_[r]->num_ended();
    blocks_[r]->wake(&barrier_);
  }
}

void BlockCluster::wait(Where where) {
  Fiber& self = running();
  if (!self.arrived) self.block->fault("barrier.cluster.wait: the thread did not arrive before", where);
  if (self.arrived_phase == barrier_.phase) self.block->wait_for(&barrier_, "barrier.cluster.wait", where);
  self.arrived = false;
  order::acquire(&barrier_.sync[self.arrived_phase % 2]);
  self.block->acquire(barrier_.released[self.arrived_phase % 2]);
}

void BlockCluster::fence_mbarrier_init() {
  const Fiber& self = running();
  const auto phase = self.arrived ? self.arrived_phase + 1 : barrier_.phase;
  order::release(&barrier_.sync[phase % 2]);
}

void BlockCluster::note_end(const Fiber& fiber) {
  if (fiber.arrived && fiber.arrived_phase == barrier_.phase) return;
  if (barrier_.num_arrived > 0) {
    fiber.block->fault(
        fmt::format("barrier.cluster: the thread ended while {} threads of the cluster have arrived here",
                    barrier_.num_arrived),
        barrier_.where);
  }
  ++barrier_.num_absent;
}

std::string BlockCluster::outstanding(const void* event) const {
  if (const auto grid = grid_barriers_.find(static_cast<const unsigned*>(event)); grid != grid_barriers_.end()) {
    return fmt::format("{} of the grid's {} blocks have arrived", grid->second.arrived % size_, size_);
  }
  if (event != &barrier_) return {};
  return fmt::format("{} of the cluster's {} threads have arrived", barrier_.num_arrived, num_threads());
}

// --- Shared memory of other blocks

std::string BlockCluster::describe_shared(const void* address) const {
  Block* const block = owner(address);
  return block ? block->shared().describe(address) : "";
}

Block* BlockCluster::owner(const void* address) const {
  for (int r = 0; r < size_; ++r) {
    if (blocks_[r]->shared().owns(address)) return blocks_[r].get();
  }
  return nullptr;
}

namespace {

void arrive_and_pause(bool release, Where where) {
  Block& block = detail::active("barrier.cluster.arrive", where);
  block.cluster().arrive(release, where);
  block.pause();
}

}  // namespace

void cluster_arrive(Where where) { arrive_and_pause(true, where); }
void cluster_arrive_relaxed(Where where) { arrive_and_pause(false, where); }
void cluster_wait(Where where) { detail::active("barrier.cluster.wait", where).cluster().wait(where); }

namespace detail {

void* map_shared(const void* address, unsigned rank, Where where) {
  Block& block = active("mapa", where);
  const unsigned size = current->cluster_size;
  if (rank >= size) block.fault(fmt::format("mapa: rank {} in a cluster of {} blocks", rank, size), where);
  if (!block.shared().owns(address)) block.fault("mapa: not an address in the calling block's shared memory", where);
  return block.cluster().block(static_cast<int>(rank)).shared().same_place(address, block.shared());
}

void check_cluster_access(const void* address, std::size_t bytes, const char* what, Where where) {
  Block& self = active(what, where);
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    self.fault(fmt::format("{}: address is not aligned to the access's {} bytes", what, bytes), where);
  }
  Block* const owner = self.cluster().owner(address);
  if (owner == nullptr || !owner->shared().contains(address, bytes)) {
    self.fault(fmt::format("{}: out of bounds of {}'s shared memory", what,
                           owner ? "block " + owner->name() : "every block of the cluster"),
               where);
  }
  owner->note_access(what, where);
}

}  // namespace detail

}  // namespace ladder::simt
