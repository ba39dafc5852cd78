// A sum of many terms by one thread, whose error does not grow with their number.
#pragma once

#include "core/device.h"

namespace ladder::softmax {

// Kahan 1965: what an addition rounds away comes back with the next term.
struct CompensatedSum {
  float sum = 0;
  float excess = 0;  // of the sum over the terms

  __device__ __forceinline__ void add(float term) {
    const float owed = term - excess;
    const float next = sum + owed;
    excess = next - sum - owed;
    sum = next;
  }
};

}  // namespace ladder::softmax
