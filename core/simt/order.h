// Happens-before of a kernel's accesses, checked in builds with LADDER_ORDER (preset order) and empty in all others. Two
// accesses of the same bytes, of which one is a write, are a race unless something orders them, whatever values a run
// shows. A race ends the kernel with a Fault that names both places, both threads, the bytes and the missing edge.
//
// Kernels are compiled with -fsanitize=thread, whose calls order.cpp answers in place of ThreadSanitizer's library: that
// knows neither blocks nor proxies. The emulator says here what orders what: each call below is by the running thread.
//
// Rules, from the PTX ISA's chapter "Memory Consistency Model" (sections "Causality Order" and "Proxies") and the sections
// of the instructions; where they leave a choice, the stricter reading:
// - release() and acquire() of one address stand for every barrier: all that the releasing thread did or acquired before is
//   ordered before what the acquiring thread does after. A relaxed arrival at a cluster's barrier calls neither. One at another
//   block's mbarrier, of which dev/ptx/cluster.h says that it ends reads alone, counts as a release of stores too.
// - __threadfence() and the atomic after it are one release, an atomic and the fence after it one acquire ("Memory Consistency
//   Model: Release and Acquire Patterns"), at one place for all addresses: a flag that is not the one that was set orders here
//   as well, so that some races between blocks are missed.
// - wgmma reads shared memory, and the TMA reads and writes memory, through the async proxy ("Async proxy"). A thread's own
//   stores are ordered before such an access only by its fence.proxy.async between the store and the barrier that announces it.
//   The fence is strict: one by the thread that waited at the barrier does not cover others' stores, as CUTLASS has it too.
//   Reads before an access by the async proxy need no such fence, nor do accesses after a copy whose mbarrier was waited for
//   ("mbarrier: Tracking asynchronous operations by the mbarrier object").
// - A copy is an agent of its own: its accesses happen after its issue and before its mbarrier's phase completes. So are a
//   warpgroup's tensor cores, from the wgmma to a wgmma.wait_group that covers it: one multiplication of four warps, which
//   is over for all of them when it is for one ("wgmma.mma_async", "wgmma.wait_group"; so CUTLASS has one thread of four
//   warps release a stage).
// - st.async writes through the generic proxy: the sections on proxies do not name it.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

#include "core/simt/fault.h"

namespace ladder::simt {

class Block;
class BlockCluster;
struct Launch;

namespace order {

// A unit that accesses memory on a thread's behalf, and the number of its operation.
struct Agent {
  unsigned who = 0;
  std::uint32_t epoch = 0;
};

#if defined(LADDER_ORDER)

inline constexpr bool kChecked = true;

// Threads of a cluster run on one OS thread, and so do the clusters of a launch: a cluster's accesses are complete when the
// next begins. LADDER_ORDER=off in the environment checks nothing.
void begin_launch(const Launch& launch);
void begin_cluster(const BlockCluster& cluster, uint3 index);
void end_cluster();

void release(const void* at);
void acquire(const void* at);
// A fence, or an atomic, of the running thread: one place for all addresses.
void release_fence();
void acquire_fence();
void fence_proxy_async();

// The next copy into `block`'s shared memory, and the multiplication `number`, from 1 on, of a warpgroup of it.
Agent copy_into(const Block& block);
Agent multiplication(const Block& block, int warpgroup, std::uint64_t number);
// Accesses by the async proxy, or by a copy of the generic one, which the running thread issued at `where`.
void async_read(Agent agent, const void* p, std::size_t bytes, Where where);
void async_wrote(Agent agent, const void* p, std::size_t bytes, bool generic_proxy, Where where);
// Orders the agent's operation before acquire(at), or before what the running thread does from here on.
void release(Agent agent, const void* at);
void acquire(Agent agent);
// A write by the running thread that the emulator makes for it.
void wrote(const void* p, std::size_t bytes, Where where);

#else

inline constexpr bool kChecked = false;

inline void begin_launch(const Launch&) {}
inline void begin_cluster(const BlockCluster&, uint3) {}
inline void end_cluster() {}
inline void release(const void*) {}
inline void acquire(const void*) {}
inline void release_fence() {}
inline void acquire_fence() {}
inline void fence_proxy_async() {}
inline Agent copy_into(const Block&) { return {}; }
inline Agent multiplication(const Block&, int, std::uint64_t) { return {}; }
inline void async_read(Agent, const void*, std::size_t, Where) {}
inline void async_wrote(Agent, const void*, std::size_t, bool, Where) {}
inline void release(Agent, const void*) {}
inline void acquire(Agent) {}
inline void wrote(const void*, std::size_t, Where) {}

#endif

}  // namespace order

}  // namespace ladder::simt
