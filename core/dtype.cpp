#include "core/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ladder {
namespace {

constexpr std::uint32_t kSign = 0x80000000u;
constexpr std::uint32_t kInfinity = 0x7f800000u;  // of fp32, without its sign

// Rounds an fp32 bit pattern to nearest even at bit `kDropped`: adds just under half a unit, and one more if the kept
// part is odd, so that a tie carries only into an odd one. A carry out of the mantissa is the right exponent.
template <int kDropped>
std::uint32_t round_bits(std::uint32_t bits) {
  constexpr std::uint32_t kUnit = 1u << kDropped;
  return (bits + (kUnit / 2 - 1) + ((bits >> kDropped) & 1)) & ~(kUnit - 1);
}

// NaNs keep away from round_bits, whose carry would turn some into an infinity. As CUDA's conversions do, every NaN
// becomes the positive one with all mantissa bits set.
std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kSign) > kInfinity) return 0x7fff;
  return static_cast<std::uint16_t>(round_bits<16>(bits) >> 16);
}

float from_bf16(std::uint16_t stored) { return std::bit_cast<float>(std::uint32_t{stored} << 16); }

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & ~kSign;
  const auto sign = static_cast<std::uint16_t>((bits & kSign) >> 16);
  constexpr std::uint32_t kSmallestNormal = std::uint32_t{127 - 14} << 23;
  if (magnitude > kInfinity) return 0x7fff;
  if (magnitude < kSmallestNormal) {
    // Subnormals are multiples of 2^-24, the distance of neighbours in [0.5, 1): adding 0.5 rounds to them.
    constexpr float kHalf = 0.5f;
    const float shifted = std::bit_cast<float>(magnitude) + kHalf;
    const std::uint32_t multiple = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kHalf);
    return static_cast<std::uint16_t>(sign | multiple);
  }
  constexpr std::uint32_t kRebias = std::uint32_t{127 - 15} << 23;
  const std::uint32_t rounded = (round_bits<13>(magnitude) - kRebias) >> 13;
  return static_cast<std::uint16_t>(sign | (rounded < 0x7c00 ? rounded : 0x7c00));
}

float from_f16(std::uint16_t stored) {
  const std::uint32_t sign = std::uint32_t{stored & 0x8000u} << 16;
  const std::uint32_t magnitude = stored & 0x7fffu;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | kInfinity | (magnitude & 0x3ff) << 13);
  if (magnitude < 0x0400) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (std::uint32_t{127 - 15} << 23)));
}

float to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kSign) > kInfinity) return std::bit_cast<float>(0x7fffe000u);
  return std::bit_cast<float>(round_bits<13>(bits));
}

// The nearest integer, ties to even, that T holds; 0 for what is no number.
template <class T>
T to_integer(float value) {
  if (!(value == value)) return 0;
  const double rounded = std::nearbyint(static_cast<double>(value));
  constexpr auto kLowest = static_cast<double>(std::numeric_limits<T>::lowest());
  constexpr auto kHighest = static_cast<double>(std::numeric_limits<T>::max());
  if (rounded <= kLowest) return std::numeric_limits<T>::lowest();
  if (rounded >= kHighest) return std::numeric_limits<T>::max();
  return static_cast<T>(rounded);
}

template <class T>
float from_integer(T value) {
  return static_cast<float>(value);
}

template <auto kConvert, class From, class To>
void convert(const From* from, std::size_t count, To* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = kConvert(from[i]);
}

}  // namespace

const char* name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "fp32";
    case Dtype::tf32:
      return "tf32";
    case Dtype::bf16:
      return "bf16";
    case Dtype::f16:
      return "fp16";
    case Dtype::i32:
      return "int32";
    case Dtype::i64:
      return "int64";
    case Dtype::u8:
      return "uint8";
  }
  return "?";
}

std::optional<Dtype> parse_dtype(std::string_view word) {
  for (const Dtype dtype : kProblemDtypes) {
    if (word == name(dtype)) return dtype;
  }
  return std::nullopt;
}

std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::tf32:
    case Dtype::i32:
      return 4;
    case Dtype::bf16:
    case Dtype::f16:
      return 2;
    case Dtype::i64:
      return 8;
    case Dtype::u8:
      return 1;
  }
  return 0;
}

double unit_roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return 0x1p-24;
    case Dtype::tf32:
      return 0x1p-11;
    case Dtype::bf16:
      return 0x1p-8;
    case Dtype::f16:
      return 0x1p-11;
    case Dtype::i32:
    case Dtype::i64:
    case Dtype::u8:
      return 0;
  }
  return 0;
}

float round_to(Dtype dtype, float value) {
  switch (dtype) {
    case Dtype::f32:
      return value;
    case Dtype::tf32:
      return to_tf32(value);
    case Dtype::bf16:
      return from_bf16(to_bf16(value));
    case Dtype::f16:
      return from_f16(to_f16(value));
    case Dtype::i32:
      return from_integer(to_integer<std::int32_t>(value));
    case Dtype::i64:
      return from_integer(to_integer<std::int64_t>(value));
    case Dtype::u8:
      return from_integer(to_integer<std::uint8_t>(value));
  }
  return value;
}

void encode(Dtype dtype, const float* values, std::size_t count, void* stored) {
  switch (dtype) {
    case Dtype::f32:
      std::memcpy(stored, values, count * sizeof(float));
      break;
    case Dtype::tf32:
      convert<to_tf32>(values, count, static_cast<float*>(stored));
      break;
    case Dtype::bf16:
      convert<to_bf16>(values, count, static_cast<std::uint16_t*>(stored));
      break;
    case Dtype::f16:
      convert<to_f16>(values, count, static_cast<std::uint16_t*>(stored));
      break;
    case Dtype::i32:
      convert<to_integer<std::int32_t>>(values, count, static_cast<std::int32_t*>(stored));
      break;
    case Dtype::i64:
      convert<to_integer<std::int64_t>>(values, count, static_cast<std::int64_t*>(stored));
      break;
    case Dtype::u8:
      convert<to_integer<std::uint8_t>>(values, count, static_cast<std::uint8_t*>(stored));
      break;
  }
}

void decode(Dtype dtype, const void* stored, std::size_t count, float* values) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::tf32:
      std::memcpy(values, stored, count * sizeof(float));
      break;
    case Dtype::bf16:
      convert<from_bf16>(static_cast<const std::uint16_t*>(stored), count, values);
      break;
    case Dtype::f16:
      convert<from_f16>(static_cast<const std::uint16_t*>(stored), count, values);
      break;
    case Dtype::i32:
      convert<from_integer<std::int32_t>>(static_cast<const std::int32_t*>(stored), count, values);
      break;
    case Dtype::i64:
      convert<from_integer<std::int64_t>>(static_cast<const std::int64_t*>(stored), count, values);
      break;
    case Dtype::u8:
      convert<from_integer<std::uint8_t>>(static_cast<const std::uint8_t*>(stored), count, values);
      break;
  }
}

}  // namespace ladder
