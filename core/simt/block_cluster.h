// Runs the threads of one thread-block cluster as fibers on the calling OS thread, one at a time, in the order a Schedule
// asks for. A block that was launched without a cluster is a cluster of one.
//
// A fiber runs until it waits: for a block barrier, for the other lanes of a warp collective, for an event of the
// asynchronous units or of the cluster's barrier, or for ever, because it has ended. The scheduler then picks another
// fiber that can run. If none can and some still wait, the kernel is deadlocked, and the report lists the waiting
// threads and their places.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/simt/cluster_clock.h"
#include "core/simt/fiber.h"
#include "core/simt/options.h"
#include "core/simt/random.h"
#include "core/simt/shared_memory.h"

namespace ladder::simt {

class BlockCluster {
 public:
  struct Kernel {
    void (*body)(void*);
    void* context;
    Launch launch;
    std::uint64_t number;  // of the launch, unique
    Options options;
    std::atomic<bool>* waited;             // a thread executed griddepcontrol.wait
    std::atomic<bool>* starts_next_early;  // a thread let the next grid start while it took flags, before it waited
    bool started_early;                    // the grid in front did so
  };

  BlockCluster();
  ~BlockCluster();

  // Run the whole cluster; throws what its first failing thread threw. `watched`: a thread that touches device memory
  // before it waits for the previous grid is a fault; no other cluster may run meanwhile.
  void run(const Kernel& kernel, uint3 cluster_idx, bool watched);

  int size() const { return size_; }
  Block& block(int rank) const { return *blocks_[rank]; }
  int num_stacks() const;  // of all its blocks

  // Called by the blocks.
  const Kernel& kernel() const { return *kernel_; }
  // Switch to the next thread that can run, or to the scheduler if there is none or the cluster has failed. Returns
  // when it is the caller's turn again.
  void leave(Side& from);
  bool idle() const;  // no thread can run
  void fail(std::exception_ptr error) { error_ = std::move(error); }
  template <class Error = Fault>
  void fail(const Fiber& fiber, const std::string& what) {  // with an Error of that thread
    fail(std::make_exception_ptr(Error(report(fiber, what))));
  }
  void abandon(Fiber& fiber);  // leaves the running thread of a failed cluster for good
  std::uint64_t num_switches() const { return num_switches_; }  // from thread to thread so far
  // Called by the watchdog every second of processor time. Returns the seconds since run() began.
  int tick() { return ++seconds_; }
  void end_at_next_switch() { overdue_ = 1; }
  std::string replay() const;
  SharedMemory::Placement placement() const { return placement_; }  // the same in all blocks

  // barrier.cluster by the running thread. Without `release` it orders the beginnings and ends of blocks, and no
  // accesses.
  void arrive(bool release, Where where);
  void wait(Where where);
  // fence.mbarrier_init.release.cluster, by the running thread: its accesses so far are ordered before the waits of the
  // barrier that it arrives at next, even if it arrives relaxed. The hardware orders mbarrier.init alone.
  void fence_mbarrier_init();
  // Note that a thread of the cluster ends.
  void note_end(const Fiber& fiber);
  // Barrier of a cooperative grid, by the running thread. The blocks count at `counter` (grid_barrier.h).
  void arrive_in_grid(unsigned* counter, Where where);
  void wait_in_grid(const unsigned* counter, unsigned target, Where where);
  // Describe, for reports, what the barrier that is `event` still waits for; empty if `event` is no barrier of the
  // cluster.
  std::string outstanding(const void* event) const;

  // Wait, by the running thread, for the previous grid; `what` names the instruction.
  void pass_grid_dependency(const char* what, Where where);
  // Returns true if the thread must not touch device memory yet.
  bool closed_to(const Fiber& fiber) const { return watched_ && !fiber.waited; }
  // Count the running thread among those that sleep until no other can run. Returns the event that it is to wait for.
  const void* add_sleeper() {
    any_asleep_ = true;
    return &any_asleep_;
  }
  // Open device memory for the emulator's own accesses, until the next switch.
  void open_memory() { set_memory_open(true); }

  // Describe an address of shared memory: "shared array tile + 512 bytes (it has 512)". Empty if `address` is in no
  // block's.
  std::string describe_shared(const void* address) const;
  // Returns the block whose shared memory contains `address`, or null.
  Block* owner(const void* address) const;

 private:
  // All threads arrive once per phase; then the next phase begins.
  struct Barrier {
    unsigned phase = 0;
    int num_arrived = 0;
    int num_absent = 0;        // threads that ended and did not arrive in this phase
    Where where;               // of the latest arrival
    ClusterClock released[2];  // of this phase and the previous one, which some threads may not have left yet
    char sync[2];              // the same for order.h
  };

  struct GridBarrier {
    unsigned arrived = 0;  // blocks, in all phases together
    char sync[2];          // for order.h, of this phase and the previous one
  };

  static void enter(boost::context::detail::transfer_t from);
  void switch_sides(Side& from, Side& to);
  Fiber* pick();
  Block* pick_block();
  bool let_copies_land(Block& block);  // false if that failed
  int num_threads() const;
  std::string waiting() const;
  std::string report(const Fiber& fiber, const std::string& what) const;
  void fail_overdue();
  bool end_grid_dependency();  // true if it lets threads go on
  void set_memory_open(bool open);
  bool wake_sleepers();  // true if there are any

  const Kernel* kernel_ = nullptr;
  std::vector<std::unique_ptr<Block>> blocks_;  // the first size_ blocks are the cluster
  int size_ = 0;
  int greedy_block_ = 0;
  Random random_{0};  // picks the next block; each block picks among its own threads
  Barrier barrier_;
  std::map<const unsigned*, GridBarrier> grid_barriers_;  // by counter
  std::exception_ptr error_;

  SharedMemory::Placement placement_ = SharedMemory::Placement::at_page_end;

  bool watched_ = false;
  bool dependency_over_ = false;
  bool memory_open_ = true;
  bool any_asleep_ = false;

  Side scheduler_;
  std::uint64_t num_switches_ = 0;
  int seconds_ = 0;
  volatile std::sig_atomic_t overdue_ = 0;  // set by a signal handler
  Side* leaving_ = nullptr;                 // the side that the switch in progress leaves
};

}  // namespace ladder::simt
