#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;
constexpr int kRows = 100;

// out[row][i], with a row's length where its number of rows belongs.
template <bool kBroken>
__global__ void fill_kernel(int* out) {
  const unsigned row = blockIdx.x;
  out[(kBroken ? 10'000 : kThreads) * row + threadIdx.x] = static_cast<int>(row);
}

bool run(bool broken) {
  Guarded<int> out(kRows * kThreads, -1, "out");
  launch(broken ? fill_kernel<true> : fill_kernel<false>, {kRows, kThreads}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kRows * kThreads; ++i) right &= out[i] == i / kThreads;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("far_write", "a write far from every tensor",
             ({.report = true, .asan = true, .says = "a write out of bounds: out + "}), ladder::faults::run);
