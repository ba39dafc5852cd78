#include "dev/ptx/cp_async.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;
constexpr int kEntries = 3;
constexpr int kTurns = 7;

// out[i] = the sum over turns t of t in[t][i], through a ring that each thread has for itself: no barrier.
template <bool kBroken>
__global__ void ring_kernel(const float* in, float* out) {
  LADDER_SHARED(float, ring, [kEntries][kThreads]);
  const int i = static_cast<int>(threadIdx.x);
  const auto fetch = [&](int t) {
    if (t < kTurns) ptx::cp_async<4>(&ring[t % kEntries][i], in + t * kThreads + i, true);
    ptx::cp_async_commit();
  };
  for (int t = 0; t < kEntries; ++t) fetch(t);
  float sum = 0;
  for (int t = 0; t < kTurns; ++t) {
    ptx::cp_async_wait<kEntries - 1>();
    if (kBroken) fetch(t + kEntries);
    sum += static_cast<float>(t) * ring[t % kEntries][i];
    if (!kBroken) fetch(t + kEntries);
  }
  out[i] = sum;
}

bool run(bool broken) {
  Guarded<float> in(kTurns * kThreads), out(kThreads, -1);
  for (int i = 0; i < kTurns * kThreads; ++i) in[i] = static_cast<float>(i % 31);
  launch(broken ? ring_kernel<true> : ring_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) {
    float sum = 0;
    for (int t = 0; t < kTurns; ++t) sum += static_cast<float>(t) * in[t * kThreads + i];
    right &= out[i] == sum;
  }
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("ring_refilled_before_read", "a copy begins into an entry of a ring that has not been read",
             ({.value = true}), ladder::faults::run);
