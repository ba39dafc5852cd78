// A ring of stages in shared memory that a producer fills and consumers empty, each stage behind a pair of barriers.
#pragma once

#include "core/device.h"

namespace ladder {

// Position in a ring of stages, and the parity of the phase that a consumer waits for there.
template <int kStages>
struct RingIndex {
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The same for whoever counts the fills: where the i-th lies, and the parity of the phase in which it is full.
template <int kStages>
__device__ __forceinline__ int stage_of(int i) {
  return i % kStages;
}
template <int kStages>
__device__ __forceinline__ unsigned parity_of(int i) {
  return i / kStages % 2;
}

}  // namespace ladder
