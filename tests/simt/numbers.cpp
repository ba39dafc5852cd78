// Device functions that NVIDIA's headers leave to the compiler.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/simt/support.h"

namespace ladder::simt::test {
namespace {

TEST(Numbers, bit_intrinsics) {
  EXPECT_EQ(__popc(0xf0f0u), 8);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__brev(1u), 0x80000000u);
  EXPECT_EQ(__umulhi(0x80000000u, 6u), 3u);
  EXPECT_EQ(__funnelshift_l(0x80000001u, 0x2u, 1), 5u);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7410u), 0x77441100u);
  EXPECT_EQ(__byte_perm(0x33221100u, 0u, 0xba98u), 0x33221100u) << "bit 3 of a nibble means nothing";
  EXPECT_EQ(__float_as_uint(1.0f), 0x3f800000u);
}

TEST(Numbers, min_and_max_mix_types_as_cuda_does) {
  EXPECT_EQ(min(3, -4), -4);
  EXPECT_EQ(max(3u, 4), 4u);
  static_assert(std::is_same_v<decltype(min(1, 1u)), unsigned>);
  static_assert(std::is_same_v<decltype(max(1.0f, 1)), float>);
  EXPECT_EQ(max(NAN, 2.0f), 2.0f) << "as fmaxf";
}

// A bf16 or fp16 fma rounds once. The reference rounds the exact value, held in long double (64-bit mantissa: enough for
// these operands), by comparing it with both neighbours.
template <class T>
void check_fma(int lowest_exponent, int highest_exponent) {
  std::mt19937 random(1);
  auto draw = [&] {
    const float mantissa = 1.0f + static_cast<float>(random() % 128) / 128;
    const int exponent = lowest_exponent + static_cast<int>(random() % (highest_exponent - lowest_exponent + 1));
    return detail::from_float<T>(std::ldexp(random() % 2 ? mantissa : -mantissa, exponent));
  };
  for (int i = 0; i < 200000; ++i) {
    const T a = draw(), b = draw(), c = draw();
    const T result = __hfma(a, b, c);
    const long double exact = static_cast<long double>(detail::to_float(a)) * detail::to_float(b) + detail::to_float(c);
    const long double error = std::fabs(exact - detail::to_float(result));
    const auto bits = std::bit_cast<std::uint16_t>(result);
    for (const int step : {-1, 1}) {
      if ((bits & 0x7fff) == 0) continue;
      const T neighbour = std::bit_cast<T>(static_cast<std::uint16_t>(bits + step));
      const long double other = std::fabs(exact - detail::to_float(neighbour));
      ASSERT_LE(error, other);
      if (error == other) {
        ASSERT_EQ(bits & 1, 0) << "a tie goes to the even one";
      }
    }
  }
}

TEST(Numbers, fma_of_16_bit_numbers_rounds_once) {
  check_fma<__nv_bfloat16>(-12, 12);
  check_fma<__half>(-5, 5);
}

// Exponents far apart: the sum is 1 + 2^-8 + 2^-80, just above the middle of two bf16 numbers, and its last term is lost
// in a double, from which the middle would then round to even.
TEST(Numbers, fma_sees_what_a_double_cannot_hold) {
  const auto c = __float2bfloat16(1.0f + 0x1p-7f);
  const auto just_less = __hfma(__float2bfloat16(-0x1p-8f), __float2bfloat16(1.0f), c);
  EXPECT_EQ(__bfloat162float(just_less), 1.0f) << "1 + 2^-8: a tie, to even";
  EXPECT_EQ(detail::fma_round_to_odd(0x1p-40, 0x1p-40, 1 + 0x1p-8), std::nextafter(1 + 0x1p-8, 2.0));
  EXPECT_EQ(detail::fma_round_to_odd(-0x1p-40, 0x1p-40, 1 + 0x1p-8), std::nextafter(1 + 0x1p-8, 0.0));
  EXPECT_EQ(detail::fma_round_to_odd(0x1p-4, 0x1p-4, 1), 1 + 0x1p-8) << "exact sums stay";
}

__global__ void math_kernel(const float* x, float* y) {
  const float v = x[threadIdx.x];
  float* out = y + 8 * threadIdx.x;
  out[0] = __expf(v);
  out[1] = __logf(v);
  out[2] = rsqrtf(v);
  out[3] = __fmaf_rn(v, v, v);
  out[4] = __fdividef(v, 3.0f);
  out[5] = __saturatef(v);
  out[6] = __powf(v, 1.5f);
  out[7] = __ldg(x + threadIdx.x);
}

TEST(Numbers, float_functions) {
  const std::vector<float> x = {0.25f, 1.0f, 2.5f, 7.75f};
  std::vector<float> y(32);
  launch(math_kernel, {1, 4}, nullptr, x.data(), y.data());
  for (int i = 0; i < 4; ++i) {
    const double v = x[i];
    const double expected[] = {std::exp(v), std::log(v),      1 / std::sqrt(v), v * v + v,
                               v / 3,       std::min(v, 1.0), std::pow(v, 1.5), v};
    for (int f = 0; f < 8; ++f) EXPECT_NEAR(y[8 * i + f], expected[f], 1e-6 * (1 + std::fabs(expected[f]))) << f;
  }
}

}  // namespace
}  // namespace ladder::simt::test
