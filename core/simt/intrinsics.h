// Device functions that are nvcc's builtins: bit and cache intrinsics, mathematics with named rounding, the approximate
// functions, and the 16-bit arithmetic that NVIDIA's headers give to GPU compilers alone.
//
// An approximate function is the accurate one here: the GPU's is within its documented error of it, never equal to it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include "core/simt/runtime.h"

// --- min and max, for mixed operands as nvcc's

template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmin(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}

template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>)
    return std::fmax(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

// --- Loads and stores with cache hints

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldca(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stwb(T* p, std::type_identity_t<T> value) {
  *p = value;
}
template <class T>
void __stcg(T* p, std::type_identity_t<T> value) {
  *p = value;
}
template <class T>
void __stcs(T* p, std::type_identity_t<T> value) {
  *p = value;
}

// --- Bits

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>(std::int64_t{a} * b >> 32); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}
// Byte i of the result is the byte of b:a that the lower three bits of nibble i of `selector` name. The PTX instruction
// has a meaning for bit 3; the intrinsic masks it.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned byte = bytes >> 8 * (selector >> 4 * i & 7) & 0xff;
    result |= byte << 8 * i;
  }
  return result;
}
// The dot product of four bytes of a and b, plus c, modulo 2^32.
inline int __dp4a(char4 a, char4 b, int c) {
  return static_cast<int>(static_cast<unsigned>(a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w) +
                          static_cast<unsigned>(c));
}
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
  return static_cast<unsigned>(a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w) + c;
}
inline int __dp4a(int a, int b, int c) { return __dp4a(std::bit_cast<char4>(a), std::bit_cast<char4>(b), c); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  return __dp4a(std::bit_cast<uchar4>(a), std::bit_cast<uchar4>(b), c);
}
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// --- fp32 with named rounding

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frsqrt_rn(float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }  // NaN becomes 0
inline int __float2int_rn(float a) { return static_cast<int>(std::nearbyint(a)); }
inline int __float2int_rz(float a) { return static_cast<int>(a); }
inline int __float2int_rd(float a) { return static_cast<int>(std::floor(a)); }
inline int __float2int_ru(float a) { return static_cast<int>(std::ceil(a)); }
inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline float __uint2float_rn(unsigned a) { return static_cast<float>(a); }

// sine and cosine of pi x, which glibc lacks. Reduced to a turn in fp32, which is exact, then in double.
inline void sincospif(float x, float* sine, float* cosine) {
  const double angle = std::numbers::pi * std::fmod(x, 2.0f);
  *sine = static_cast<float>(std::sin(angle));
  *cosine = static_cast<float>(std::cos(angle));
}

// --- Approximate functions. glibc declares some of these names for itself, hence noexcept.

inline float __expf(float x) noexcept { return std::exp(x); }
inline float __exp10f(float x) noexcept { return std::pow(10.0f, x); }
inline float __logf(float x) noexcept { return std::log(x); }
inline float __log2f(float x) noexcept { return std::log2(x); }
inline float __log10f(float x) noexcept { return std::log10(x); }
inline float __powf(float x, float y) noexcept { return std::pow(x, y); }
inline float __sinf(float x) noexcept { return std::sin(x); }
inline float __cosf(float x) noexcept { return std::cos(x); }
inline float __tanf(float x) noexcept { return std::tan(x); }
inline float __tanhf(float x) noexcept { return std::tanh(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }

// --- 16-bit arithmetic

namespace ladder::simt::detail {

template <class T>
concept Float16 = std::same_as<T, __half> || std::same_as<T, __nv_bfloat16>;
template <class T>
concept Float16x2 = std::same_as<T, __half2> || std::same_as<T, __nv_bfloat162>;

template <Float16 T>
float to_float(T x) {
  if constexpr (std::same_as<T, __half>)
    return __half2float(x);
  else
    return __bfloat162float(x);
}
template <Float16 T>
T from_double(double x) {
  if constexpr (std::same_as<T, __half>)
    return __double2half(x);
  else
    return __double2bfloat16(x);
}
template <Float16 T>
T from_float(float x) {
  if constexpr (std::same_as<T, __half>)
    return __float2half_rn(x);
  else
    return __float2bfloat16_rn(x);
}

// a * b + c rounded to odd: a second rounding, to fewer bits, then gives what one rounding of the exact value would
// (Boldo and Melquiond 2008). The product of two 16-bit formats is exact in double.
inline double fma_round_to_odd(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  const double c_part = sum - product;
  const double error = (product - (sum - c_part)) + (c - c_part);
  if (error == 0 || (std::bit_cast<std::uint64_t>(sum) & 1) != 0) return sum;
  return std::nextafter(sum, error > 0 ? HUGE_VAL : -HUGE_VAL);
}

}  // namespace ladder::simt::detail

template <ladder::simt::detail::Float16 T>
T __hfma(T a, T b, T c) {
  using namespace ladder::simt::detail;
  return from_double<T>(fma_round_to_odd(to_float(a), to_float(b), to_float(c)));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

template <ladder::simt::detail::Float16 T>
T __hfma_sat(T a, T b, T c) {
  return ladder::simt::detail::from_float<T>(__saturatef(ladder::simt::detail::to_float(__hfma(a, b, c))));
}
template <ladder::simt::detail::Float16 T>
T __hfma_relu(T a, T b, T c) {
  const float x = ladder::simt::detail::to_float(__hfma(a, b, c));
  return ladder::simt::detail::from_float<T>(x < 0.0f ? 0.0f : x);  // NaN stays
}
template <ladder::simt::detail::Float16x2 T>
T __hfma2_sat(T a, T b, T c) {
  return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};
}
template <ladder::simt::detail::Float16x2 T>
T __hfma2_relu(T a, T b, T c) {
  return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};
}
// a * b + c of complex numbers x + iy.
template <ladder::simt::detail::Float16x2 T>
T __hcmadd(T a, T b, T c) {
  return {__hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};
}

// A function of one 16-bit number, h<name>(), and of two, h2<name>(), by its value in fp32 at x.
#define LADDER_FLOAT16_FUNCTION(name, value)                  \
  template <ladder::simt::detail::Float16 T>                  \
  T h##name(T argument) {                                     \
    const float x = ladder::simt::detail::to_float(argument); \
    return ladder::simt::detail::from_float<T>(value);        \
  }                                                           \
  template <ladder::simt::detail::Float16x2 T>                \
  T h2##name(T argument) {                                    \
    return {h##name(argument.x), h##name(argument.y)};        \
  }
LADDER_FLOAT16_FUNCTION(exp, std::exp(x))
LADDER_FLOAT16_FUNCTION(exp2, std::exp2(x))
LADDER_FLOAT16_FUNCTION(exp10, std::pow(10.0f, x))
LADDER_FLOAT16_FUNCTION(log, std::log(x))
LADDER_FLOAT16_FUNCTION(log2, std::log2(x))
LADDER_FLOAT16_FUNCTION(log10, std::log10(x))
LADDER_FLOAT16_FUNCTION(sqrt, std::sqrt(x))
LADDER_FLOAT16_FUNCTION(rsqrt, rsqrtf(x))
LADDER_FLOAT16_FUNCTION(rcp, 1.0f / x)
LADDER_FLOAT16_FUNCTION(sin, std::sin(x))
LADDER_FLOAT16_FUNCTION(cos, std::cos(x))
LADDER_FLOAT16_FUNCTION(tanh, std::tanh(x))
LADDER_FLOAT16_FUNCTION(tanh_approx, std::tanh(x))
LADDER_FLOAT16_FUNCTION(floor, std::floor(x))
LADDER_FLOAT16_FUNCTION(ceil, std::ceil(x))
LADDER_FLOAT16_FUNCTION(trunc, std::trunc(x))
LADDER_FLOAT16_FUNCTION(rint, std::nearbyint(x))
#undef LADDER_FLOAT16_FUNCTION
