#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 64;
constexpr int kSize = 100;

// The sum of neighbours; the last element has none. The broken kernel drops what it should not have read.
template <bool kBroken>
__global__ void neighbours_kernel(const int* in, int* out) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= kSize) return;
  if (kBroken) {
    const int next = in[i + 1];
    out[i] = in[i] + (i + 1 < kSize ? next : 0);
  } else {
    out[i] = in[i] + (i + 1 < kSize ? in[i + 1] : 0);
  }
}

bool run(bool broken) {
  Guarded<int> in(kSize, 1, "in"), out(kSize, -1, "out");
  launch(broken ? neighbours_kernel<true> : neighbours_kernel<false>, {2, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kSize; ++i) right &= out[i] == (i + 1 < kSize ? 2 : 1);
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("global_read_out_of_bounds", "reads past a tensor's end, and then masks what it read",
             ({.report = true, .asan = true, .says = "a read out of bounds: in + 400 bytes (in has 400)"}),
             ladder::faults::run);
