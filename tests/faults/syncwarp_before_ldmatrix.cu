#include "dev/ptx/ldmatrix.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

template <bool kBroken>
__global__ void ldmatrix_kernel(const std::uint32_t* in, std::uint32_t* out) {
  LADDER_SHARED(uint4, rows, [32]);
  const unsigned lane = threadIdx.x;
  auto* words = reinterpret_cast<std::uint32_t*>(&rows[0]);
  for (unsigned i = lane; i < 128; i += 32) words[i] = in[i];
  if (!kBroken) __syncwarp();
  std::uint32_t r[4];
  ptx::ldmatrix_x4(r, &rows[lane]);
  for (int j = 0; j < 4; ++j) out[4 * lane + j] = r[j];
}

bool run(bool broken) {
  Guarded<std::uint32_t> in(128), out(128, ~0u);
  for (unsigned i = 0; i < 128; ++i) in[i] = 3 * i;
  launch(broken ? ldmatrix_kernel<true> : ldmatrix_kernel<false>, {1, 32}, nullptr, in.get(), out.get());
  bool right = true;
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned j = 0; j < 4; ++j) right &= out[4 * lane + j] == in[(8 * j + lane / 4) * 4 + lane % 4];
  }
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("syncwarp_before_ldmatrix", "no __syncwarp between the lanes' stores and ldmatrix",
             ({.value = true, .order = true}), ladder::faults::run);
