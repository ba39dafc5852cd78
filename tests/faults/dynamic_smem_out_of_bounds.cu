#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 64;

// A row is padded to avoid bank conflicts, and the launch forgot the padding.
__global__ void padded_kernel(int* out) {
  constexpr int kRow = 8 + 1;
  LADDER_DYN_SMEM(smem);
  auto* tile = reinterpret_cast<int*>(smem);
  const unsigned i = threadIdx.x;
  tile[i / 8 * kRow + i % 8] = static_cast<int>(i);
  __syncthreads();
  out[i] = tile[i % 8 * kRow + i / 8];
}

bool run(bool broken) {
  Guarded<int> out(kThreads, -1);
  const std::size_t bytes = (broken ? 8 * 8 : 8 * 9) * sizeof(int);
  launch(padded_kernel, {1, kThreads, bytes}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == i % 8 * 8 + i / 8;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("dynamic_smem_out_of_bounds", "less dynamic shared memory launched than the kernel uses",
             ({.report = true, .asan = true, .says = "dynamic shared memory + 256 bytes (it has 256)"}),
             ladder::faults::run);
