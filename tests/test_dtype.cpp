// Rounding and storage of every dtype, against CUDA's own conversions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "core/dtype.h"
#include "tests/support.h"

namespace ladder {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
float from_bits(std::uint32_t value) { return std::bit_cast<float>(value); }

std::uint16_t stored(Dtype dtype, float value) {
  std::uint16_t out = 0;
  encode(dtype, &value, 1, &out);
  return out;
}

float loaded(Dtype dtype, std::uint16_t value) {
  float out = 0;
  decode(dtype, &value, 1, &out);
  return out;
}

std::uint16_t cuda_bf16(float value) { return std::bit_cast<std::uint16_t>(__float2bfloat16_rn(value)); }
std::uint16_t cuda_f16(float value) { return std::bit_cast<std::uint16_t>(__float2half_rn(value)); }

// fp32 bit patterns at and around everything that rounding treats specially: each exponent, with mantissas at the ties
// of 7, 10 and 10 kept bits and their neighbours; infinities, NaNs, zeros and subnormals are among them.
std::vector<float> corner_values() {
  std::vector<std::uint32_t> mantissas;
  for (const std::uint32_t dropped : {13u, 16u}) {
    const std::uint32_t ulp = 1u << dropped;
    for (const std::uint32_t kept : {0u, 1u, 2u, 3u, (1u << (23 - dropped)) - 2, (1u << (23 - dropped)) - 1}) {
      for (const std::uint32_t dropped_bits : {0u, 1u, ulp / 2 - 1, ulp / 2, ulp / 2 + 1, ulp - 1}) {
        mantissas.push_back(kept << dropped | dropped_bits);
      }
    }
  }
  // fp16 subnormals drop up to ten bits more.
  for (int bit = 0; bit < 23; ++bit) {
    for (const int delta : {-1, 0, 1}) mantissas.push_back(((1u << bit) + delta) & 0x7fffff);
  }
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const std::uint32_t mantissa : mantissas) {
      values.push_back(from_bits(exponent << 23 | mantissa));
      values.push_back(from_bits(0x80000000u | exponent << 23 | mantissa));
    }
  }
  return values;
}

void expect_as_cuda(float value) {
  ASSERT_EQ(stored(Dtype::bf16, value), cuda_bf16(value)) << std::hex << bits(value);
  ASSERT_EQ(stored(Dtype::f16, value), cuda_f16(value)) << std::hex << bits(value);
}

TEST(Dtype, CornersEncodeAsCudaDoes) {
  for (const float value : corner_values()) expect_as_cuda(value);
}

TEST(Dtype, RandomBitsEncodeAsCudaDoes) {
  std::mt19937_64 random(test::seed());
  for (int i = 0; i < 2'000'000; ++i) expect_as_cuda(from_bits(static_cast<std::uint32_t>(random())));
}

TEST(Dtype, EveryStoredValueDecodesAsCudaDoesAndEncodesBack) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto word = static_cast<std::uint16_t>(i);
    const float bf16 = __bfloat162float(std::bit_cast<__nv_bfloat16>(word));
    const float f16 = __half2float(std::bit_cast<__half>(word));
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(loaded(Dtype::bf16, word))) << i;
    } else {
      ASSERT_EQ(bits(loaded(Dtype::bf16, word)), bits(bf16)) << i;
      ASSERT_EQ(stored(Dtype::bf16, bf16), word);
    }
    if (std::isnan(f16)) {
      EXPECT_TRUE(std::isnan(loaded(Dtype::f16, word))) << i;
    } else {
      ASSERT_EQ(bits(loaded(Dtype::f16, word)), bits(f16)) << i;
      ASSERT_EQ(stored(Dtype::f16, f16), word);
    }
  }
}

TEST(Dtype, RoundToIsEncodeThenDecode) {
  for (const float value : corner_values()) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
      ASSERT_EQ(bits(round_to(dtype, value)), bits(loaded(dtype, stored(dtype, value)))) << std::hex << bits(value);
    }
    ASSERT_EQ(bits(round_to(Dtype::f32, value)), bits(value));
  }
}

// tf32 has fp32's exponents and fp16's mantissa. nearbyint in double, scaled to tf32's ulp at the value's exponent,
// rounds ties to even as well.
TEST(Dtype, Tf32RoundsToTenBitsTiesToEven) {
  for (const float value : corner_values()) {
    const float rounded = round_to(Dtype::tf32, value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(rounded));
      continue;
    }
    ASSERT_EQ(bits(rounded) & 0x1fffu, 0u) << std::hex << bits(value);
    if (std::isinf(value)) {
      ASSERT_EQ(rounded, value);
      continue;
    }
    const int exponent = std::max(value == 0 ? -126 : std::ilogb(value), -126);
    const double ulp = std::ldexp(1.0, exponent - 10);
    const double expected = std::nearbyint(value / ulp) * ulp;
    const bool overflows = std::abs(expected) > std::numeric_limits<float>::max();
    ASSERT_EQ(rounded, overflows ? std::copysign(kInfinity, value) : static_cast<float>(expected))
        << std::hex << bits(value);
  }
}

TEST(Dtype, UnitRoundoffIsTheLargestRelativeError) {
  std::mt19937_64 random(test::seed());
  std::uniform_real_distribution<float> uniform(1.0f, 2.0f);
  for (const Dtype dtype : {Dtype::tf32, Dtype::bf16, Dtype::f16}) {
    double largest = 0;
    for (int i = 0; i < 200'000; ++i) {
      const float value = uniform(random);
      largest = std::max(largest, std::abs(round_to(dtype, value) - double(value)) / value);
    }
    EXPECT_LE(largest, unit_roundoff(dtype)) << name(dtype);
    EXPECT_GT(largest, 0.9 * unit_roundoff(dtype)) << name(dtype);
  }
}

TEST(Dtype, NamesRoundTrip) {
  for (const Dtype dtype : kProblemDtypes) EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  for (const char* word : {"", "fp64", "FP32", "half"}) EXPECT_EQ(parse_dtype(word), std::nullopt);
}

}  // namespace
}  // namespace ladder
