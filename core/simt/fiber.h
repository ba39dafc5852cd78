// A CUDA thread as the emulator keeps it, a stack of its own and what it waits for, and a warp of them.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <memory>

#include "core/simt/runtime.h"

namespace ladder::simt {

using detail::Collective;
using detail::kWarpSize;

class Block;

// One end of a switch: a fiber, or the scheduler on the OS thread's own stack.
struct Side {
  boost::context::detail::fcontext_t context = nullptr;  // where it goes on; set while it does not run
  const void* stack_bottom = nullptr;
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
  bool over = false;           // it never comes back
};

struct Fiber : detail::Thread, Side {
  static constexpr unsigned kMaxCopies = 1024;  // in flight: more than any kernel's stages hold

  struct InFlight {
    detail::Copy copy;
    unsigned group;
  };

  Block* block = nullptr;
  int index = 0;  // linear thread index
  bool ended = false;
  bool waited = false;       // for the grid in front or for flags of it, or the launch does not overlap it
  bool takes_flags = false;  // of the grid in front, which it has not waited for yet
  bool arrived = false;      // at the cluster's barrier, in the phase `arrived_phase`, and did not wait for it yet
  unsigned arrived_phase = 0;
  unsigned mask = 0;

  // The warp collective it waits in, if any.
  const Collective* collective = nullptr;
  void* operands = nullptr;
  Where where;

  // The event it waits for, if any, and what it calls that.
  const void* event = nullptr;
  const char* event_name = nullptr;

  // Its cp.async copies: a ring of those in flight, made on first use. The group that is still open has the number
  // num_groups.
  std::unique_ptr<InFlight[]> copies;
  unsigned first_copy = 0;
  unsigned end_copy = 0;
  unsigned num_groups = 0;
};

struct Warp {
  unsigned existing = 0;  // lanes that the block has
  unsigned ready = 0;     // can run
  unsigned waiting = 0;   // in a warp collective
  unsigned blocked = 0;   // for an event
  unsigned ended = 0;
  unsigned sync_parity = 0;      // a bit for each lane that leads a mask, see join()
  char sync[2][kWarpSize] = {};  // for order.h
};

// The fiber that this OS thread is running; not for use outside kernels.
inline Fiber& running() { return static_cast<Fiber&>(*detail::current); }

}  // namespace ladder::simt
