#include "core/simt/grid_barrier.h"

#include <fmt/format.h>

#include "core/simt/block.h"
#include "core/simt/order.h"

namespace ladder::simt {

void BlockCluster::arrive_in_grid(unsigned* counter, Where where) {
  const Block& block = *running().block;
  if (!kernel_->launch.cooperative) {
    block.fault("grid barrier: the grid is not cooperative, so that not all of its blocks need run at the same time",
                where);
  }
  GridBarrier& barrier = grid_barriers_[counter];
  if (*counter != barrier.arrived) {
    block.fault(fmt::format("grid barrier: the counter holds {} where {} blocks have arrived: it must be 0 when the "
                            "grid starts",
                            *counter, barrier.arrived),
                where);
  }
  order::release(&barrier.sync[barrier.arrived / size_ % 2]);
  *counter = ++barrier.arrived;
  if (barrier.arrived % size_ != 0) return;
  for (int r = 0; r < size_; ++r) blocks_[r]->wake(counter);
}

void BlockCluster::wait_in_grid(const unsigned* counter, unsigned target, Where where) {
  GridBarrier& barrier = grid_barriers_[counter];
  if (barrier.arrived < target) running().block->wait_for(counter, "a grid barrier", where);
  order::acquire(&barrier.sync[(target / size_ - 1) % 2]);
}

void grid_arrive(unsigned* counter, Where where) {
  Block& block = detail::active("a grid barrier", where);
  block.cluster().arrive_in_grid(counter, where);
  block.pause();
}

void grid_wait(const unsigned* counter, unsigned target, Where where) {
  detail::active("a grid barrier", where).cluster().wait_in_grid(counter, target, where);
}

}  // namespace ladder::simt
