// Bit patterns of the tensor cores' operand formats, as fp32.
#pragma once

#include <bit>
#include <cstdint>

namespace ladder::simt::detail {

inline float from_bf16_bits(std::uint32_t bits) { return std::bit_cast<float>(bits << 16); }

// Convert fp16 by rescaling instead of branches, so that loops over it vectorise: shifted into place, an fp16 is an
// fp32 that is 2^112 too small, subnormals included.
inline float from_f16_bits(std::uint32_t bits) {
  const std::uint32_t magnitude = (bits & 0x7fff) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const std::uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0;  // infinity and NaN keep their exponent
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | (bits & 0x8000) << 16);
}

// The hardware ignores the 13 low bits.
inline float from_tf32_bits(std::uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); }

}  // namespace ladder::simt::detail
