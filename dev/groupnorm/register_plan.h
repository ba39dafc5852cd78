// Plans of v07, which keeps x and dz of a slab in registers; gradient_plan.cpp chooses them.
#pragma once

#include "dev/groupnorm/gradient_plan.h"

namespace ladder::groupnorm {

// Vectors a thread has at most: they take 48 (16-bit) or 64 (fp32) registers of the 128 that leave room
// for 512 threads on an SM.
constexpr int max_register_steps(int element_bytes) { return element_bytes == 4 ? 8 : 4; }

struct RegisterPlan {
  Slab slab;
  int threads = 256;  // 512: twice the slab, and one block an SM
};
RegisterPlan plan_registers(const Problem& p);

}  // namespace ladder::groupnorm
