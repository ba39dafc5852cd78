// Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011. A word of randomness
// follows from its counter and key alone, so that any thread makes any part of a stream, and makes it again.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/device.h"

namespace ladder {

struct PhiloxWords {
  std::uint32_t word[4];
};

__host__ __device__ __forceinline__ PhiloxWords philox4x32_10(std::uint64_t counter_low, std::uint64_t counter_high,
                                                              std::uint64_t key) {
  constexpr std::uint64_t kMultiplier0 = 0xd2511f53;
  constexpr std::uint64_t kMultiplier1 = 0xcd9e8d57;
  constexpr std::uint32_t kWeyl0 = 0x9e3779b9;
  constexpr std::uint32_t kWeyl1 = 0xbb67ae85;
  auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  std::uint32_t c0 = low(counter_low);
  std::uint32_t c1 = high(counter_low);
  std::uint32_t c2 = low(counter_high);
  std::uint32_t c3 = high(counter_high);
  std::uint32_t k0 = low(key);
  std::uint32_t k1 = high(key);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * c0;
    const std::uint64_t product1 = kMultiplier1 * c2;
    c0 = high(product1) ^ c1 ^ k0;
    c1 = low(product1);
    c2 = high(product0) ^ c3 ^ k1;
    c3 = low(product0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

// Two normal numbers of two words: Box and Muller 1958. u1 lies in [2^-33, 1], so the radius is at most 6.77.
__device__ __forceinline__ float2 box_muller(std::uint32_t first, std::uint32_t second) {
  const float u1 = fmaf(__uint2float_rn(first), 0x1p-32f, 0x1p-33f);
  const float u2 = __uint2float_rn(second) * 0x1p-32f;
  const float radius = sqrtf(-2.0f * logf(u1));
  float sine = 0;
  float cosine = 0;
  sincospif(2.0f * u2, &sine, &cosine);
  return {radius * cosine, radius * sine};
}

__device__ __forceinline__ float4 four_normals(std::uint64_t counter_low, std::uint64_t counter_high,
                                               std::uint64_t key) {
  const PhiloxWords r = philox4x32_10(counter_low, counter_high, key);
  const float2 a = box_muller(r.word[0], r.word[1]);
  const float2 b = box_muller(r.word[2], r.word[3]);
  return {a.x, a.y, b.x, b.y};
}

}  // namespace ladder
