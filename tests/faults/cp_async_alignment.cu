#include "dev/ptx/cp_async.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;

// Rows of five floats cannot be copied 16 bytes at a time; rows of four can.
template <bool kBroken>
__global__ void copy_rows_kernel(const float* in, float* out) {
  constexpr int kRow = kBroken ? 5 : 4;
  LADDER_SHARED(alignas(16) float, rows, [kThreads * kRow]);
  float* row = &rows[threadIdx.x * kRow];
  ptx::cp_async<16>(row, in + 4 * threadIdx.x, true);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  out[threadIdx.x] = row[3];
}

bool run(bool broken) {
  Guarded<float> in(4 * kThreads), out(kThreads, -1);
  for (int i = 0; i < 4 * kThreads; ++i) in[i] = static_cast<float>(i);
  launch(broken ? copy_rows_kernel<true> : copy_rows_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == 4 * i + 3;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cp_async_alignment", "16-byte copies to rows that are not 16-byte aligned", ({.report = true}),
             ladder::faults::run);
