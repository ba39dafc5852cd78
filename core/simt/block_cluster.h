// Runs the threads of one thread-block cluster as fibers on the calling OS thread, one at a time, in the order a Schedule
// asks for. A block that was launched without a cluster is a cluster of one.
//
// A fiber runs until it waits: for a block barrier, for the other lanes of a warp collective, for an event of the
// asynchronous units or of the cluster's barrier, or for ever, because it has ended. Then the scheduler picks another one
// that can run. If none can and some still wait, the kernel is deadlocked, and who waits where is the report.
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
    std::uint64_t number;  // of the launch: no other has it
    Options options;
    void* end;                  // ThreadSanitizer: every thread's end is ordered before whoever acquires this
    std::atomic<bool>* waited;  // a thread executed griddepcontrol.wait
  };

  BlockCluster();
  ~BlockCluster();

  // Runs the whole cluster; throws what its first failing thread threw. `watched`: its threads are found out if they touch
  // device memory before they wait for the grid in front; no other cluster may run meanwhile.
  void run(const Kernel& kernel, uint3 cluster_idx, bool watched);

  int size() const { return size_; }
  Block& block(int rank) const { return *blocks_[rank]; }
  int num_stacks() const;  // that it holds

  // For the blocks.
  const Kernel& kernel() const { return *kernel_; }
  // Lets the next thread that can run go on, or the scheduler if there is none or the cluster has failed. Returns when it
  // is the caller's turn again.
  void leave(Side& from);
  bool idle() const;  // no thread can run
  void fail(std::exception_ptr error) { error_ = std::move(error); }
  template <class Error = Fault>
  void fail(const Fiber& fiber, const std::string& what) {  // with an Error of that thread's
    fail(std::make_exception_ptr(Error(report(fiber, what))));
  }
  void abandon(Fiber& fiber);  // leaves the running thread, of a cluster that has failed, and never returns to it
  std::uint64_t num_switches() const { return num_switches_; }  // from thread to thread so far
  // For the watchdog. A second of processor time has passed; how many since run() began.
  int tick() { return ++seconds_; }
  void end_at_next_switch() { overdue_ = 1; }
  std::string replay() const;
  SharedMemory::Placement placement() const { return placement_; }  // the same in all blocks

  // barrier.cluster, by the running thread. Without `release` it orders when blocks begin and end, and no accesses.
  void arrive(bool release, Where where);
  void wait(Where where);
  // fence.mbarrier_init.release.cluster, by the running thread: its accesses so far are ordered before the waits of the
  // barrier that it arrives at next, even if it arrives relaxed. The hardware orders mbarrier.init alone.
  void fence_mbarrier_init();
  // A thread of the cluster ends.
  void note_end(const Fiber& fiber);
  // The barrier of a cooperative grid whose blocks count at `counter`, by the running thread (grid_barrier.h).
  void arrive_in_grid(unsigned* counter, Where where);
  void wait_in_grid(const unsigned* counter, unsigned target, Where where);
  // What the barrier waits for if `event` is it, for reports; else empty.
  std::string outstanding(const void* event) const;

  // The running thread waits for the grid in front, in `what`.
  void pass_grid_dependency(const char* what, Where where);
  // The running thread must not touch device memory yet.
  bool closed_to(const Fiber& fiber) const { return watched_ && !fiber.waited; }
  // For the emulator's own accesses, until the next switch.
  void open_memory() { set_memory_open(true); }

  // "shared array tile + 512 bytes (it has 512)"; empty if `address` is in no block's shared memory.
  std::string describe_shared(const void* address) const;
  // The block in whose shared memory `address` lies; null if in none's.
  Block* owner(const void* address) const;

 private:
  // All threads arrive once in a phase; then the next begins.
  struct Barrier {
    unsigned phase = 0;
    int num_arrived = 0;
    int num_absent = 0;        // threads that ended and did not arrive in this phase
    Where where;               // of the latest arrival
    ClusterClock released[2];  // of this phase and the last one, which some may not have left yet
    char sync[2];              // the same for ThreadSanitizer
  };

  struct GridBarrier {
    unsigned arrived = 0;  // blocks, in all phases together
    char sync[2];          // of this phase and the last one, for ThreadSanitizer
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

  const Kernel* kernel_ = nullptr;
  std::vector<std::unique_ptr<Block>> blocks_;  // the first size_ of them are the cluster
  int size_ = 0;
  int greedy_block_ = 0;
  Random random_{0};  // which block is next; each block draws for its own threads
  Barrier barrier_;
  std::map<const unsigned*, GridBarrier> grid_barriers_;  // by counter
  std::exception_ptr error_;

  SharedMemory::Placement placement_ = SharedMemory::Placement::at_page_end;

  bool watched_ = false;
  bool dependency_over_ = false;
  bool memory_open_ = true;

  Side scheduler_;
  int turn_ = 0;    // which of every fiber's ThreadSanitizer fibers this cluster uses
  char start_ = 0;  // ThreadSanitizer: a cluster's beginning is ordered before all its threads
  std::uint64_t num_switches_ = 0;
  int seconds_ = 0;
  volatile std::sig_atomic_t overdue_ = 0;  // set by a signal handler
  Side* leaving_ = nullptr;                 // the side that the switch in progress leaves
};

}  // namespace ladder::simt
