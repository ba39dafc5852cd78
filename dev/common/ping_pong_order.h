// Ping-pong order of two consumer warpgroups that take tiles by turns from one ring of stages. A group starts to wait
// for its tile's stages when the other group has waited for all stages of the tile before. Then one group stores while
// the other multiplies.
//
// Without this order a group could read a stage too early. A wait names a phase by its parity alone, so that it is
// sound only if the previous phase is known to be over, and a group does not see the other's stages fill.
#pragma once

#include "dev/ptx/mbarrier.h"

namespace ladder {

struct PingPongOrder {
  static constexpr int kGroups = 2;
  static constexpr int kWarpsPerGroup = 4;

  ptx::Mbarrier* passed;  // [group], in shared memory: the other group has passed the turn on to this one

  // Initialise the barriers. One thread calls, as for all inits.
  __device__ __forceinline__ void init() const {
    for (int group = 0; group < kGroups; ++group) ptx::mbarrier_init(passed + group, kWarpsPerGroup);
  }

  // Wait for turn number `turn`, counted over both groups. Group 0 has the even turns; turn 0 needs no wait.
  __device__ __forceinline__ void wait(int turn) const {
    if (turn > 0) ptx::mbarrier_wait(passed + turn % kGroups, (turn - 1) / kGroups % 2);
  }

  // Pass the turn on to the other group. One lane of each of the group's warps calls, after the last wait for a stage
  // of this turn's tile and after a wgmma, or another convergence of the warp's lanes, that follows: no lane may still
  // be waiting.
  __device__ __forceinline__ void pass_on(int turn) const { ptx::mbarrier_arrive(passed + (turn + 1) % kGroups); }
};

}  // namespace ladder
