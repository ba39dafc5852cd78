// Shuffles, votes, matches, reducing barriers and atomics, compared bit for bit.
#include "core/device.h"
#include "tests/conformance/wrappers.h"

namespace ladder::conformance {
namespace {

constexpr unsigned kAll = 0xffffffffu;

// Run Body on one warp. Each lane gets one random 32-bit word and writes kWords words.
template <int kWords, class Body>
__global__ void warp_kernel(const std::uint32_t* in, std::uint32_t* out) {
  Body::run(in[threadIdx.x], out + kWords * threadIdx.x);
}

template <int kWords, class Body>
Output on_warp() {
  DeviceArray<std::uint32_t> in(Inputs().words(32)), out(32 * kWords);
  launch(warp_kernel<kWords, Body>, {1, 32}, nullptr, in.get(), out.get());
  return {.words = out.to_host(), .shape = {32, kWords}};
}

struct Index {
  static __device__ void run(std::uint32_t x, std::uint32_t* out) {
    for (int width = 1; width <= 32; width *= 2) {
      for (int i = 0; i < 4; ++i) *out++ = __shfl_sync(kAll, x, static_cast<int>(threadIdx.x) * 3 + 11 * i - 5, width);
    }
  }
};
struct Up {
  static __device__ void run(std::uint32_t x, std::uint32_t* out) {
    for (int width = 1; width <= 32; width *= 2) {
      for (unsigned delta : {0u, 1u, 5u, 16u}) *out++ = __shfl_up_sync(kAll, x, delta, width);
    }
  }
};
struct Down {
  static __device__ void run(std::uint32_t x, std::uint32_t* out) {
    for (int width = 1; width <= 32; width *= 2) {
      for (unsigned delta : {0u, 1u, 5u, 16u}) *out++ = __shfl_down_sync(kAll, x, delta, width);
    }
  }
};
struct Xor {
  static __device__ void run(std::uint32_t x, std::uint32_t* out) {
    for (int width = 1; width <= 32; width *= 2) {
      for (int mask : {1, 2, 13, 31}) *out++ = __shfl_xor_sync(kAll, x, mask, width);
    }
  }
};
struct Wide {
  static __device__ void run(std::uint32_t x, std::uint32_t* out) {
    const auto l = static_cast<unsigned long long>(x) << 32 | threadIdx.x;
    const unsigned long long moved = __shfl_xor_sync(kAll, l, 9);
    out[0] = static_cast<std::uint32_t>(moved);
    out[1] = static_cast<std::uint32_t>(moved >> 32);
    out[2] = __float_as_uint(__bfloat162float(__shfl_down_sync(kAll, __float2bfloat16(threadIdx.x * 1.0f), 3)));
    out[3] = __float_as_uint(__half2float(__shfl_up_sync(kAll, __float2half(threadIdx.x * 1.0f), 3)));
  }
};
struct Votes {
  static __device__ void run(std::uint32_t x, std::uint32_t* out) {
    out[0] = __ballot_sync(kAll, x & 1);
    out[1] = __any_sync(kAll, x == 0) != 0;
    out[2] = __all_sync(kAll, x != 0) != 0;
    out[3] = threadIdx.x < 12 ? __ballot_sync(0x00000fffu, x & 2) : __ballot_sync(0xfffff000u, x & 4);
  }
};
struct Matches {
  static __device__ void run(std::uint32_t x, std::uint32_t* out) {
    int same = 0;
    out[0] = __match_any_sync(kAll, x % 5);
    out[1] = __match_all_sync(kAll, x % 5, &same);
    out[2] = same != 0;
    out[3] = __match_all_sync(kAll, 7u, &same);
    out[4] = same != 0;
  }
};

LADDER_CONFORMS(shfl_sync, (on_warp<24, Index>))
LADDER_CONFORMS(shfl_up_sync, (on_warp<24, Up>))
LADDER_CONFORMS(shfl_down_sync, (on_warp<24, Down>))
LADDER_CONFORMS(shfl_xor_sync, (on_warp<24, Xor>))
LADDER_CONFORMS(shfl_sync_64_and_16_bit, (on_warp<4, Wide>))
LADDER_CONFORMS(votes, (on_warp<4, Votes>))
LADDER_CONFORMS(matches, (on_warp<5, Matches>))

__global__ void barriers_kernel(const std::uint32_t* in, std::uint32_t* out) {
  const std::uint32_t x = in[threadIdx.x];
  std::uint32_t* results = out + 3 * threadIdx.x;
  results[0] = __syncthreads_count(x % 3 == 0);
  results[1] = __syncthreads_and(x != 0) != 0;
  results[2] = __syncthreads_or(x == 0) != 0;
}

Output barriers() {
  DeviceArray<std::uint32_t> in(Inputs().words(150)), out(450);
  launch(barriers_kernel, {1, 150}, nullptr, in.get(), out.get());
  return {.words = out.to_host(), .shape = {150, 3}};
}

LADDER_CONFORMS(syncthreads_reductions, barriers)

// Atomics with totals that do not depend on the order. Float sums add small integers, hence are exact.
__global__ void atomics_kernel(const std::uint32_t* in, std::uint32_t* out) {
  const std::uint32_t x = in[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(&out[0], x);
  atomicAdd(reinterpret_cast<int*>(&out[1]), static_cast<int>(x % 1000) - 500);
  atomicMax(&out[2], x);
  atomicMin(&out[3], ~x | 1);
  atomicMax(reinterpret_cast<int*>(&out[4]), static_cast<int>(x));
  atomicMin(reinterpret_cast<int*>(&out[5]), static_cast<int>(x));
  atomicOr(&out[6], 1u << x % 32);
  atomicXor(&out[7], x);
  atomicAdd(reinterpret_cast<float*>(&out[8]), static_cast<float>(x % 64));
  atomicInc(&out[9], 999);
  unsigned seen = out[10];
  for (unsigned expected = seen + 1; expected != seen;) {
    expected = seen;
    seen = atomicCAS(&out[10], expected, expected + x % 7);
  }
  if (atomicExch(&out[11], 1) == 0) atomicAdd(&out[12], 1);
}

Output atomics() {
  DeviceArray<std::uint32_t> in(Inputs().words(16 * 128)), out(13);
  launch(atomics_kernel, {16, 128}, nullptr, in.get(), out.get());
  return {.words = out.to_host(), .shape = {13}};
}

LADDER_CONFORMS(atomics, atomics)

}  // namespace
}  // namespace ladder::conformance
