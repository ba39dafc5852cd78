#include "dev/ptx/mbarrier.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 64;
constexpr int kTurns = 5;

// out[i] = the sum over turns t of in[t][(i + 1) % kThreads]: each thread stores an element of a row and reads its
// neighbour's. Two rows in turn; an mbarrier tells that a row is there, and a thread that arrives for the next one has
// read the row before.
template <bool kBroken>
__global__ void rows_kernel(const float* in, float* out) {
  LADDER_SHARED(ptx::Mbarrier, stored, [1]);
  LADDER_SHARED(float, rows, [2][kThreads]);
  const int i = static_cast<int>(threadIdx.x);
  if (i == 0) ptx::mbarrier_init(stored, kThreads);
  __syncthreads();
  float sum = 0;
  for (int t = 0; t < kTurns; ++t) {
    if (kBroken) ptx::mbarrier_arrive(stored);
    rows[t % 2][i] = in[t * kThreads + i];
    if (!kBroken) ptx::mbarrier_arrive(stored);
    ptx::mbarrier_wait(stored, t % 2);
    sum += rows[t % 2][(i + 1) % kThreads];
  }
  out[i] = sum;
}

bool run(bool broken) {
  Guarded<float> in(kTurns * kThreads), out(kThreads, -1);
  for (int i = 0; i < kTurns * kThreads; ++i) in[i] = static_cast<float>(i % 31);
  launch(broken ? rows_kernel<true> : rows_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) {
    float sum = 0;
    for (int t = 0; t < kTurns; ++t) sum += in[t * kThreads + (i + 1) % kThreads];
    right &= out[i] == sum;
  }
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("stored_after_arrival", "an element is stored after the arrival that announces it",
             ({.value = true, .order = true}), ladder::faults::run);
