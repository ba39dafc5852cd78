#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;

// Halves a number until it is one; the broken kernel, until it is zero by a test that it never meets.
template <bool kBroken>
__global__ void log2_kernel(const volatile int* in, int* out) {
  int steps = 0;
  for (int value = in [threadIdx.x]; kBroken ? value != -1 : value > 1; value /= 2) ++steps;
  out[threadIdx.x] = steps;
}

bool run(bool broken) {
  Guarded<int> in(kThreads, 8, "in"), out(kThreads, -1, "out");
  launch(broken ? log2_kernel<true> : log2_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == 3;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("endless_loop", "a loop whose condition never becomes false",
             ({.report = true, .says = "endless_loop.cu:12: the thread has run for", .slow = true}),
             ladder::faults::run);
