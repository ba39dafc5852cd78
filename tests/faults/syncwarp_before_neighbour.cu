#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 64;

template <bool kBroken>
__global__ void neighbour_kernel(const int* in, int* out) {
  LADDER_SHARED(int, tile, [kThreads]);
  const unsigned i = threadIdx.x;
  tile[i] = in[i];
  if (!kBroken) __syncwarp();
  out[i] = tile[i ^ 1];
}

bool run(bool broken) {
  Guarded<int> in(kThreads), out(kThreads, -1);
  for (int i = 0; i < kThreads; ++i) in[i] = i;
  launch(broken ? neighbour_kernel<true> : neighbour_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == (i ^ 1);
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("syncwarp_before_neighbour", "no __syncwarp before reading what another lane wrote",
             ({.value = true, .order = true}), ladder::faults::run);
