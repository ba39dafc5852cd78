#include "dev/ptx/grid_barrier.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 4;

// Each block reads what its neighbour wrote.
template <bool kBroken>
__global__ void neighbour_kernel(int* values, int* out, unsigned* counter) {
  values[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
  ptx::GridBarrier barrier(counter);
  if (!kBroken) barrier.sync();
  out[blockIdx.x] = values[(blockIdx.x + 1) % kBlocks];
}

bool run(bool broken) {
  Guarded<int> values(kBlocks, -1), out(kBlocks, -1);
  Guarded<unsigned> counter(1, 0);
  launch(broken ? neighbour_kernel<true> : neighbour_kernel<false>, {.grid = kBlocks, .block = 1, .cooperative = true},
         nullptr, values.get(), out.get(), counter.get());
  bool right = true;
  for (int b = 0; b < kBlocks; ++b) right &= out[b] == (b + 1) % kBlocks + 1;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("grid_barrier_before_use", "blocks read what another wrote without a grid barrier between",
             ({.value = true, .order = true}), ladder::faults::run);
