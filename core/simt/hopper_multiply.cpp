// The arithmetic of one wgmma, in loops that vectorise: converted to fp32 once, B as columns.
#include <cstring>

#include "core/simt/formats.h"
#include "core/simt/wgmma_multiply.h"

namespace ladder::simt::detail {

namespace {

constexpr int kMaxColumns = 256;

template <WgmmaFormat kFormat>
inline constexpr int kDepth = kFormat == WgmmaFormat::tf32 ? 8 : 16;

template <WgmmaFormat kFormat>
void convert(const WgmmaRow& row, float (&values)[kDepth<kFormat>]) {
  if constexpr (kFormat == WgmmaFormat::tf32) {
    std::uint32_t words[8];
    std::memcpy(words, row.bytes, sizeof(words));
    for (int k = 0; k < 8; ++k) values[k] = from_tf32_bits(words[k]);
  } else {
    std::uint16_t words[16];
    std::memcpy(words, row.bytes, sizeof(words));
    for (int k = 0; k < 16; ++k) {
      if constexpr (kFormat == WgmmaFormat::bf16) {
        values[k] = from_bf16_bits(words[k]);
      } else {
        values[k] = from_f16_bits(words[k]);
      }
    }
  }
}

template <WgmmaFormat kFormat>
void multiply(int n, const WgmmaRow* a, const WgmmaRow* b, bool accumulate, float* const (&d)[4]) {
  constexpr int kK = kDepth<kFormat>;
  float columns[kK][kMaxColumns];
  for (int j = 0; j < n; ++j) {
    float values[kK];
    convert<kFormat>(b[j], values);
    for (int k = 0; k < kK; ++k) columns[k][j] = values[k];
  }
  for (int i = 0; i < 64; ++i) {
    float values[kK];
    convert<kFormat>(a[i], values);
    float* const out = d[i / 16] + i % 16 * n;
    constexpr int kTile = 8;  // sums that stay in registers
    for (int j = 0; j < n; j += kTile) {
      float sums[kTile];
      for (int t = 0; t < kTile; ++t) sums[t] = accumulate ? out[j + t] : 0.0f;
      for (int k = 0; k < kK; ++k) {
        for (int t = 0; t < kTile; ++t) sums[t] += values[k] * columns[k][j + t];
      }
      for (int t = 0; t < kTile; ++t) out[j + t] = sums[t];
    }
  }
}

}  // namespace

void multiply_wgmma(WgmmaFormat format, int n, const WgmmaRow* a, const WgmmaRow* b, bool accumulate,
                    float* const (&d)[4]) {
  switch (format) {
    case WgmmaFormat::bf16:
      return multiply<WgmmaFormat::bf16>(n, a, b, accumulate, d);
    case WgmmaFormat::f16:
      return multiply<WgmmaFormat::f16>(n, a, b, accumulate, d);
    case WgmmaFormat::tf32:
      return multiply<WgmmaFormat::tf32>(n, a, b, accumulate, d);
  }
}

}  // namespace ladder::simt::detail
