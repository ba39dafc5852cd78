// A block: its threads and warps, its barrier and shared memory, and its asynchronous units. The cluster picks the
// block that runs next (block_cluster.h); the block picks one of its own threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/simt/block_cluster.h"
#include "core/simt/fiber.h"
#include "core/simt/hopper.h"
#include "core/simt/random.h"
#include "core/simt/shared_memory.h"
#include "core/simt/stacks.h"

namespace ladder::simt {

class Block {
 public:
  explicit Block(BlockCluster& cluster);
  ~Block();

  // Called by the cluster. Prepare to run: every thread begins with `enter`.
  void begin(int rank, uint3 block_idx, void (*enter)(boost::context::detail::transfer_t));
  bool can_run() const { return ready_warps_ != 0; }
  bool can_stay() const { return (ready_warps_ >> greedy_warp_ & 1) != 0; }  // greedy schedule: its warp can run
  Fiber* pick();                                                             // the next thread, if can_run()
  bool copies_in_flight() const { return hopper_.copies.busy(); }
  void let_copies_land();
  void end(Fiber& fiber);
  bool over() const { return num_ended_ == num_threads_; }
  // Note that threads were left in the middle of their calls, and will run no more.
  void abandon_stacks() { stacks_dirty_ = true; }
  std::string waiting() const;  // for reports: threads by what and where they wait
  Where last_wait(const Fiber& fiber) const { return fiber.collective || fiber.event ? fiber.where : barrier_.where; }
  // Block index as "(1,0,0)".
  std::string name() const;
  std::string at(const Fiber& fiber) const;  // "; thread (1,0,0) of block (0,0,0)", for reports
  int num_threads() const { return num_threads_; }
  int num_ended() const { return num_ended_; }
  int num_stacks() const { return stacks_.count(); }

  // Calls of the running thread, see runtime.h.
  void join(const Collective& collective, unsigned mask, void* operands, Where where);
  int join_block(detail::Reduction reduction, int predicate, Where where);
  unsigned active_mask() const;
  void begin_copy(const detail::Copy& copy, Where where);
  void commit_copies();
  const detail::Copy* land_copy(int pending);
  [[noreturn]] void fault(const std::string& what, Where where) const;
  SharedMemory& shared() { return shared_; }
  const SharedMemory& shared() const { return shared_; }
  void* shared_variable(const char* const* key, std::size_t bytes, std::size_t alignment);
  BlockCluster& cluster() const { return cluster_; }
  int rank() const { return rank_; }

  // Used by the asynchronous units. The running thread waits until wake(event), and then checks its own condition.
  void wait_for(const void* event, const char* what, Where where);
  void wake(const void* event);
  // Called by an arrival of the running thread, which waits for nothing: under random and late others may run first.
  void pause();
  // Let other threads run first: any under random and late, and under the rest all that can.
  void sleep(Where where);
  int thread() const;  // the running thread's linear index
  const Options& options() const { return cluster_.kernel().options; }
  Random& random() { return random_; }
  Hopper& hopper() { return hopper_; }
  // Returns true if [address, address + bytes) lies within dynamic shared memory.
  bool in_dynamic(const void* address, std::size_t bytes) const;
  // Report a fault of `thread`, which may no longer run.
  [[noreturn]] void fault(const std::string& what, Where where, int thread) const;

  // Note that the running thread's block accesses this block's shared memory, or an mbarrier in it. Throws Fault if
  // this block is not known to have started, or has ended. This block may only end after the access.
  void note_access(const char* what, Where where);
  // Order all that this block did so far before any later acquire of `clock`.
  void release(ClusterClock& clock);
  void acquire(const ClusterClock& clock) { clock_.merge(clock); }

 private:
  static constexpr int kMaxThreads = 1024;
  static constexpr int kMaxWarps = kMaxThreads / kWarpSize;
  struct Barrier {
    int arrived = 0;
    unsigned generation = 0;
    detail::Reduction reduction = detail::Reduction::none;
    Where where;
    const Fiber* first = nullptr;
    int count = 0;  // true predicates
    int result = 0;
    char sync[2];  // for order.h, used in turn: the next barrier may begin before all threads left this one
  };

  void try_complete(Warp& warp, unsigned lane);
  void make_ready(Warp& warp, unsigned lanes);
  void stop(Warp& warp, unsigned lane);
  void check_end() const;
  std::string describe(const Fiber& fiber) const;

  // Latest access of another block to this block's shared memory.
  struct Access {
    std::uint32_t time = 0;  // on the other block's clock; 0: no access
    const char* what = nullptr;
    Where where;
  };

  BlockCluster& cluster_;
  Schedule schedule_ = Schedule::ascending;
  int rank_ = 0;
  uint3 block_idx_{};
  ClusterClock clock_;
  Access accesses_[kMaxClusterBlocks];
  int num_threads_ = 0;
  int num_warps_ = 0;
  int num_ended_ = 0;
  std::unique_ptr<Fiber[]> fibers_;
  std::unique_ptr<Warp[]> warps_;
  unsigned ready_warps_ = 0;  // a bit for each warp with a lane that can run
  int greedy_warp_ = 0;
  Random random_{0};
  Barrier barrier_;
  SharedMemory shared_;
  Stacks stacks_;
  Hopper hopper_{*this};
  bool stacks_dirty_ = false;  // fibers were left in the middle of their calls
};

namespace detail {

// Returns the block that the calling OS thread is running. Throws Fault, naming `what`, outside kernels.
Block& active(const char* what, Where where);

}  // namespace detail

}  // namespace ladder::simt
