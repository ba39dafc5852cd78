#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 8;
constexpr int kThreads = 32;

__global__ void clear_kernel(int* total) { *total = 0; }

__global__ void add_kernel(const int* in, int* total) { atomicAdd(total, in[blockIdx.x * kThreads + threadIdx.x]); }

// The output is poison, and fresh memory only often zero.
bool run(bool broken) {
  Guarded<int> in(kBlocks * kThreads, 1), total(1, -1);
  if (!broken) launch(clear_kernel, {1, 1}, nullptr, total.get());
  launch(add_kernel, {kBlocks, kThreads}, nullptr, in.get(), total.get());
  return total[0] == kBlocks * kThreads;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("unset_accumulator", "blocks add to an output that nobody set to zero", ({.value = true}),
             ladder::faults::run);
