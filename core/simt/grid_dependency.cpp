#include "core/simt/grid_dependency.h"

#include "core/simt/block.h"
#include "core/simt/memory.h"

namespace ladder::simt {

void BlockCluster::pass_grid_dependency(const char* what, Where where) {
  Fiber& self = running();
  if (self.waited) return;
  self.waited = true;
  if (watched_ && !dependency_over_) self.block->wait_for(&dependency_over_, what, where);
  open_memory();
}

bool BlockCluster::end_grid_dependency() {
  if (!watched_ || dependency_over_) return false;
  dependency_over_ = true;
  for (int r = 0; r < size_; ++r) blocks_[r]->wake(&dependency_over_);
  return true;
}

void BlockCluster::set_memory_open(bool open) {
  if (open == memory_open_) return;
  protect_memory(!open);
  memory_open_ = open;
}

void grid_dependency_wait(Where where) {
  BlockCluster& cluster = detail::active("griddepcontrol.wait", where).cluster();
  *cluster.kernel().waited = true;
  cluster.pass_grid_dependency("griddepcontrol.wait", where);
  running().takes_flags = false;
}

void grid_dependency_flags(Where where) {
  const Block& block = detail::active("a ready flag", where);
  if (running().waited) return;
  if (block.cluster().kernel().started_early) {
    block.fault(
        "a ready flag before griddepcontrol.wait: the grid in front took flags itself and let this one start before it "
        "waited, so the one in front of that may not have ended",
        where);
  }
  running().takes_flags = true;
  block.cluster().pass_grid_dependency("a ready flag", where);
}

void grid_dependency_launch(Where where) {
  const Block& block = detail::active("griddepcontrol.launch_dependents", where);
  if (running().takes_flags) *block.cluster().kernel().starts_next_early = true;
  if (running().waited) return;
  block.fault(
      "griddepcontrol.launch_dependents before griddepcontrol.wait: the grid after this one could take the place of "
      "the "
      "one in front, which has not ended",
      where);
}

}  // namespace ladder::simt
