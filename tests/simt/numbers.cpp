// Device functions that NVIDIA's headers leave to the compiler.
#include <gtest/gtest.h>

#include <climits>
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

TEST(Numbers, dot_products_of_bytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const unsigned a = random(), b = random(), c = random();
    std::int64_t with_sign = static_cast<int>(c);
    std::uint64_t without = c;
    for (int shift = 0; shift < 32; shift += 8) {
      with_sign += static_cast<std::int8_t>(a >> shift) * static_cast<std::int8_t>(b >> shift);
      without += (a >> shift & 0xff) * (b >> shift & 0xff);
    }
    const int x = static_cast<int>(a), y = static_cast<int>(b), z = static_cast<int>(c);
    EXPECT_EQ(__dp4a(x, y, z), static_cast<int>(with_sign));
    EXPECT_EQ(__dp4a(a, b, c), static_cast<unsigned>(without));
    EXPECT_EQ(__dp4a(std::bit_cast<char4>(a), std::bit_cast<char4>(b), z), static_cast<int>(with_sign));
    EXPECT_EQ(__dp4a(std::bit_cast<uchar4>(a), std::bit_cast<uchar4>(b), c), static_cast<unsigned>(without));
  }
  EXPECT_EQ(__dp4a(0x7f7f7f7f, 0x01010101, INT_MAX), INT_MIN + 4 * 127 - 1);
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

// Each function is the rounded one of double, up to the last bit of fp32: at most one 16-bit number beside it.
template <class T, class Pair>
void check_functions() {
  const auto near = [](T found, double expected, const char* name) {
    const int bits = std::bit_cast<std::uint16_t>(found);
    const int right = std::bit_cast<std::uint16_t>(detail::from_double<T>(expected));
    EXPECT_LE(std::abs(bits - right), 1) << name << ": " << detail::to_float(found) << " for " << expected;
  };
  for (float value : {0.125f, 0.5f, 1.5f, 2.5f, 7.75f}) {
    const Pair pair{detail::from_float<T>(value), detail::from_float<T>(1.25f)};
#define EXPECT_FUNCTION(name, formula)                   \
  {                                                      \
    const Pair found = h2##name(pair);                   \
    const auto right = [](double x) { return formula; }; \
    near(found.x, right(value), #name);                  \
    near(found.y, right(1.25), #name);                   \
    near(h##name(pair.x), right(value), #name);          \
  }
    EXPECT_FUNCTION(exp, std::exp(x));
    EXPECT_FUNCTION(exp2, std::exp2(x));
    EXPECT_FUNCTION(exp10, std::exp(x * std::log(10.0)));
    EXPECT_FUNCTION(log, std::log(x));
    EXPECT_FUNCTION(log2, std::log(x) / std::log(2.0));
    EXPECT_FUNCTION(log10, std::log(x) / std::log(10.0));
    EXPECT_FUNCTION(sqrt, std::sqrt(x));
    EXPECT_FUNCTION(rsqrt, 1 / std::sqrt(x));
    EXPECT_FUNCTION(rcp, 1 / x);
    EXPECT_FUNCTION(sin, std::sin(x));
    EXPECT_FUNCTION(cos, std::cos(x));
    EXPECT_FUNCTION(tanh, 1 - 2 / (std::exp(2 * x) + 1));
    EXPECT_FUNCTION(tanh_approx, 1 - 2 / (std::exp(2 * x) + 1));
    EXPECT_FUNCTION(floor, std::floor(x));
    EXPECT_FUNCTION(ceil, std::ceil(x));
    EXPECT_FUNCTION(trunc, std::floor(x));
    EXPECT_FUNCTION(rint, x - std::remainder(x, 1.0));
#undef EXPECT_FUNCTION
  }
  const auto number = [](float x) { return detail::from_float<T>(x); };
  const auto is = [](Pair found, float x, float y) {
    EXPECT_EQ(detail::to_float(found.x), x);
    EXPECT_EQ(detail::to_float(found.y), y);
  };
  EXPECT_EQ(detail::to_float(hrint(number(-3.5f))), -4.0f);
  EXPECT_EQ(detail::to_float(htrunc(number(-3.5f))), -3.0f);
  const Pair a{number(2), number(3)}, b{number(-1), number(0.25f)}, c{number(1), number(-0.5f)};
  is(__hfma2_relu(a, b, c), 0, 0.25f);
  is(__hfma2_sat(a, b, c), 0, 0.25f);
  is(__hfma2_sat(a, a, c), 1, 1);
  is(__hcmadd(a, b, c), 2 * -1 - 3 * 0.25f + 1, 2 * 0.25f + 3 * -1 - 0.5f);
  const T nan = number(NAN);
  EXPECT_TRUE(std::isnan(detail::to_float(__hfma_relu(nan, a.x, b.x))));
  EXPECT_EQ(detail::to_float(__hfma_sat(nan, a.x, b.x)), 0.0f);
}

TEST(Numbers, functions_of_16_bit_numbers_and_of_pairs) {
  check_functions<__half, __half2>();
  check_functions<__nv_bfloat16, __nv_bfloat162>();
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
