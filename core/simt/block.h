// One block: its threads and warps, its barrier and shared memory, and its asynchronous units. Who runs when is its
// cluster's business (block_cluster.h), which of its own threads that is, the block's.
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

  // For the cluster. Gets ready to run: every thread is to begin with `enter`.
  void begin(int rank, uint3 block_idx, int turn, void (*enter)(boost::context::detail::transfer_t));
  bool can_run() const { return ready_warps_ != 0; }
  bool can_stay() const { return (ready_warps_ >> greedy_warp_ & 1) != 0; }  // the warp that the greedy schedule is at
  Fiber* pick();                                                             // of a block that can run
  bool copies_in_flight() const { return hopper_.copies.busy(); }
  void let_copies_land();
  void end(Fiber& fiber);
  bool over() const { return num_ended_ == num_threads_; }
  // The threads will run no more. `broken`: some were left in the middle of their calls.
  void finish(int turn, bool broken);
  std::string waiting() const;  // who waits where
  Where last_wait(const Fiber& fiber) const { return fiber.collective || fiber.event ? fiber.where : barrier_.where; }
  // "(1,0,0)"
  std::string name() const;
  std::string at(const Fiber& fiber) const;  // "; thread (1,0,0) of block (0,0,0)", for reports
  int num_threads() const { return num_threads_; }
  int num_ended() const { return num_ended_; }
  int num_stacks() const { return stacks_.count(); }

  // The calls of the running thread, see runtime.h.
  void join(const Collective& collective, unsigned mask, void* operands, Where where);
  int join_block(detail::Reduction reduction, int predicate, Where where);
  unsigned active_mask() const;
  void begin_copy(const detail::Copy& copy, Where where);
  void commit_copies();
  const detail::Copy* land_copy(int pending);
  [[noreturn]] void fault(const std::string& what, Where where) const;
  SharedMemory& shared() { return shared_; }
  void* shared_variable(const char* const* key, std::size_t bytes, std::size_t alignment);
  BlockCluster& cluster() const { return cluster_; }
  int rank() const { return rank_; }

  // For the asynchronous units: the running thread waits until wake(event), and then looks whether that was for it.
  void wait_for(const void* event, const char* what, Where where);
  void wake(const void* event);
  int thread() const;  // the running thread's linear index
  const Options& options() const { return cluster_.kernel().options; }
  Random& random() { return random_; }
  Hopper& hopper() { return hopper_; }
  // True if [address, address + bytes) lies within dynamic shared memory.
  bool in_dynamic(const void* address, std::size_t bytes) const;
  // On behalf of a thread that may no longer run.
  [[noreturn]] void fault(const std::string& what, Where where, int thread) const;

  // The running thread's block reads or writes this one's shared memory, or uses an mbarrier in it. Throws Fault if this
  // block is not known to have started or has ended, and notes the access: the block may only end after it.
  void note_access(const char* what, Where where);
  // What this block did up to now is ordered before whatever acquires `clock`.
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
    int count = 0;  // of true predicates
    int result = 0;
    char sync[2];  // what ThreadSanitizer orders by, one of two, since the next barrier may begin before all left this
  };

  void try_complete(Warp& warp, unsigned lane);
  void make_ready(Warp& warp, unsigned lanes);
  void stop(Warp& warp, unsigned lane);
  void check_end() const;
  std::string describe(const Fiber& fiber) const;

  // The latest access of another block to this one's shared memory.
  struct Access {
    std::uint32_t time = 0;  // on its own clock; 0: none
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
  bool stacks_dirty_ = false;  // fibers were abandoned in the middle of their calls
};

namespace detail {

// The block that the calling OS thread is running; throws Fault, naming `what`, outside kernels.
Block& active(const char* what, Where where);

}  // namespace detail

}  // namespace ladder::simt
