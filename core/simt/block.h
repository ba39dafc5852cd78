// Runs the threads of one block as fibers on the calling OS thread, one at a time, in the order a Schedule asks for.
//
// A fiber runs until it waits: for a block barrier, for the other lanes of a warp collective, for an event of the
// asynchronous units, or for ever, because it has ended. Then the scheduler picks another one that can run. If none can and some still wait, the kernel is
// deadlocked, and who waits where is the report.
#pragma once

#include <bit>
#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "core/simt/hopper.h"
#include "core/simt/options.h"
#include "core/simt/runtime.h"
#include "core/simt/shared_memory.h"
#include "core/simt/stacks.h"

namespace ladder::simt {

using detail::Collective;
using detail::kWarpSize;

// Sebastiano Vigna's splitmix64: every seed gives an independent stream.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

class Block {
 public:
  struct Kernel {
    void (*body)(void*);
    void* context;
    Launch launch;
    Options options;
    void* end;  // ThreadSanitizer: every thread's end is ordered before whoever acquires this
  };

  Block();
  ~Block();

  // Runs the whole block; throws what its first failing thread threw.
  void run(const Kernel& kernel, uint3 block_idx);

  // The calls of the running thread, see runtime.h.
  void join(const Collective& collective, unsigned mask, void* operands, Where where);
  int join_block(detail::Reduction reduction, int predicate, Where where);
  unsigned active_mask() const;
  void begin_copy(const detail::Copy& copy, Where where);
  void commit_copies();
  const detail::Copy* land_copy(int pending);
  [[noreturn]] void fault(const std::string& what, Where where) const;
  SharedMemory& shared() { return shared_; }

  // For the asynchronous units: the running thread waits until wake(event), and then looks whether that was for it.
  void wait_for(const void* event, const char* what, Where where);
  void wake(const void* event);
  int thread() const;  // the running thread's linear index
  const Options& options() const { return kernel_->options; }
  Random& random() { return random_; }
  Hopper& hopper() { return hopper_; }
  // True if [address, address + bytes) lies within dynamic shared memory.
  bool in_dynamic(const void* address, std::size_t bytes) const;
  // On behalf of a thread that may no longer run.
  [[noreturn]] void fault(const std::string& what, Where where, int thread) const;

 private:
  static constexpr int kMostThreads = 1024;
  static constexpr int kMostWarps = kMostThreads / kWarpSize;
  static constexpr unsigned kMostCopies = 1024;  // in flight, for one thread: more than any kernel's stages hold

  // One end of a switch: a fiber, or the scheduler on the OS thread's own stack.
  struct Side {
    boost::context::detail::fcontext_t context = nullptr;  // where it goes on; set while it does not run
    const void* stack_bottom = nullptr;
    std::size_t stack_bytes = 0;
    void* fake_stack = nullptr;  // AddressSanitizer's
    void* tsan = nullptr;        // ThreadSanitizer's fiber
    bool over = false;           // it never comes back
  };
  struct Fiber;
  struct Warp;
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

  static void enter(boost::context::detail::transfer_t from);
  Fiber& running() const;
  Fiber* pick();
  void let_copies_land();
  void check_end();
  void leave(Side& from);
  void switch_sides(Side& from, Side& to);
  void end(Fiber& fiber);
  void try_complete(Warp& warp, unsigned lane);
  void make_ready(Warp& warp, unsigned lanes);
  std::string waiting() const;
  std::string describe(const Fiber& fiber) const;
  std::string replay() const;

  const Kernel* kernel_ = nullptr;
  uint3 block_idx_{};
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
  std::exception_ptr error_;

  Side scheduler_;
  int turn_ = 0;             // which of every fiber's ThreadSanitizer fibers this block uses
  char start_ = 0;           // ThreadSanitizer: a block's beginning is ordered before all its threads
  Side* leaving_ = nullptr;  // the side that the switch in progress leaves
};

namespace detail {

// The block that the calling OS thread is running; throws Fault, naming `what`, outside kernels.
Block& active(const char* what, Where where);

}  // namespace detail

}  // namespace ladder::simt
