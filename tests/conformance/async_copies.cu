// cp.async and ldmatrix: data movement, compared bit for bit.
#include "dev/ptx/cache_policy.h"
#include "dev/ptx/ldmatrix.h"
#include "tests/conformance/wrappers.h"

namespace ladder::conformance {
namespace {

constexpr int kThreads = 64;

// Every thread copies kBytes twice, in two groups; every third copy is not valid and leaves zeros.
template <int kBytes>
__global__ void cp_async_kernel(const std::uint32_t* in, std::uint32_t* out) {
  constexpr int kWords = kBytes / 4;
  LADDER_SHARED(alignas(16) std::uint32_t, tile, [2 * kThreads * kWords]);
  for (int group = 0; group < 2; ++group) {
    const int at = (group * kThreads + static_cast<int>(threadIdx.x)) * kWords;
    ptx::cp_async<kBytes>(&tile[at], in + at, (threadIdx.x + group) % 3 != 0);
    ptx::cp_async_commit();
  }
  ptx::cp_async_wait<1>();
  __syncthreads();
  for (int i = threadIdx.x; i < kThreads * kWords; i += kThreads) out[i] = tile[kThreads * kWords - 1 - i];
  ptx::cp_async_wait<0>();
  __syncthreads();
  for (int i = threadIdx.x; i < kThreads * kWords; i += kThreads) {
    out[kThreads * kWords + i] = tile[2 * kThreads * kWords - 1 - i];
  }
}

template <int kBytes>
Output cp_async() {
  constexpr int kWords = 2 * kThreads * kBytes / 4;
  DeviceArray<std::uint32_t> in(Inputs().words(kWords)), out(kWords);
  launch(cp_async_kernel<kBytes>, {1, kThreads}, nullptr, in.get(), out.get());
  return {.words = out.to_host(), .shape = {2, kThreads, kBytes / 4}};
}

LADDER_CONFORMS(cp_async_4, cp_async<4>)
LADDER_CONFORMS(cp_async_8, cp_async<8>)
LADDER_CONFORMS(cp_async_16, cp_async<16>)

// Rows of 24 elements, so that the lanes' addresses are no simple sequence.
template <bool kTransposed>
__global__ void ldmatrix_kernel(const std::uint32_t* in, std::uint32_t* out) {
  constexpr int kRowWords = 12;
  LADDER_SHARED(alignas(16) std::uint32_t, tile, [32 * kRowWords]);
  for (int i = threadIdx.x; i < 32 * kRowWords; i += 32) tile[i] = in[i];
  __syncwarp();
  std::uint32_t r[4];
  const std::uint32_t* row = &tile[(threadIdx.x * 7 % 32) * kRowWords];
  if constexpr (kTransposed) {
    ptx::ldmatrix_x4_trans(r, row);
  } else {
    ptx::ldmatrix_x4(r, row);
  }
  for (int j = 0; j < 4; ++j) out[threadIdx.x * 4 + j] = r[j];
}

template <bool kTransposed>
Output ldmatrix() {
  DeviceArray<std::uint32_t> in(Inputs().words(32 * 12)), out(128);
  launch(ldmatrix_kernel<kTransposed>, {1, 32}, nullptr, in.get(), out.get());
  return {.words = out.to_host(), .shape = {32, 4}};
}

LADDER_CONFORMS(ldmatrix_x4, ldmatrix<false>)
LADDER_CONFORMS(ldmatrix_x4_trans, ldmatrix<true>)

}  // namespace
}  // namespace ladder::conformance
