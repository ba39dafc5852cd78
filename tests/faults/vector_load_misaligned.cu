#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;

// Shifts left by one element, or by four; a float4 begins at every fourth.
template <bool kBroken>
__global__ void shift_kernel(const float* in, float* out) {
  constexpr int kShift = kBroken ? 1 : 4;
  const float4 values = *reinterpret_cast<const float4*>(in + 4 * threadIdx.x + kShift);
  reinterpret_cast<float4*>(out)[threadIdx.x] = values;
}

bool run(bool broken) {
  constexpr int kSize = 4 * kThreads;
  Guarded<float> in(kSize + 4, 0, "in"), out(kSize, -1, "out");
  for (int i = 0; i < kSize + 4; ++i) in[i] = static_cast<float>(i);
  launch(broken ? shift_kernel<true> : shift_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kSize; ++i) right &= out[i] == static_cast<float>(i + (broken ? 1 : 4));
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("vector_load_misaligned", "a float4 is read at an address that is a multiple of 4 bytes only",
             ({.report = true, .asan = true, .says = "misaligned: in + "}), ladder::faults::run);
