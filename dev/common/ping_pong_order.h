// Two consumer warpgroups that take tiles by turns out of one ring of stages: a group's waits for a tile's stages begin when
// the other has waited for all of the tile before. Then one stores while the other multiplies.
//
// Without this order a group could read a stage too early: a wait names a phase by its parity alone, so it is only sound for
// whoever knows that the phase before is over, and a group does not see the other's stages fill.
#pragma once

#include "dev/ptx/mbarrier.h"

namespace ladder {

struct PingPongOrder {
  static constexpr int kGroups = 2;
  static constexpr int kWarpsPerGroup = 4;

  ptx::Mbarrier* passed;  // [group]: the other group has passed the turn on to it, in shared memory

  // By one thread, as all inits.
  __device__ __forceinline__ void init() const {
    for (int group = 0; group < kGroups; ++group) ptx::mbarrier_init(passed + group, kWarpsPerGroup);
  }

  // Waits for turn number `turn`, counted over both groups: group 0 has the even ones and the first.
  __device__ __forceinline__ void wait(int turn) const {
    if (turn > 0) ptx::mbarrier_wait(passed + turn % kGroups, (turn - 1) / kGroups % 2);
  }

  // By one lane of each of the group's warps, after the last wait for a stage of this turn's tile and a multiplication or
  // another meeting of the warp's lanes after that: none of them may still be at its waits.
  __device__ __forceinline__ void pass_on(int turn) const { ptx::mbarrier_arrive(passed + (turn + 1) % kGroups); }
};

}  // namespace ladder
