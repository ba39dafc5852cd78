// The inner loop of every reference that sums products, vectorised for the processor at hand.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace ladder::reference {

// Resolvers of cloned functions run before a sanitizer is ready.
#if defined(__x86_64__) && !defined(LADDER_ASAN)
#define LADDER_CLONED [[gnu::target_clones("avx2", "default")]]
#else
#define LADDER_CLONED
#endif

// Outputs that a call of add_products() adds to: 4 rows of 4, whose sums stay in the 16 vector registers of AVX2.
inline constexpr int kBlockRows = 4;
inline constexpr int kBlockCols = 4;
struct ProductBlock {
  double value[kBlockRows][kBlockCols] = {};
  double magnitude[kBlockRows][kBlockCols] = {};
};

// value[row][col] += sum over t < terms of a[row * a_pitch + t] * b[t * b_pitch + col], and magnitude the same of absolute values.
LADDER_CLONED static void add_products(const double* a, std::int64_t a_pitch, const double* b, std::int64_t b_pitch,
                                       std::int64_t terms, ProductBlock& out) {
  using Vector [[gnu::vector_size(kBlockCols * sizeof(double))]] = double;
  using Bits [[gnu::vector_size(kBlockCols * sizeof(double))]] = std::int64_t;
  const Bits without_sign = Bits{} + std::numeric_limits<std::int64_t>::max();
  Vector value[kBlockRows];
  Vector magnitude[kBlockRows];
  std::memcpy(value, out.value, sizeof(value));
  std::memcpy(magnitude, out.magnitude, sizeof(magnitude));
  for (std::int64_t t = 0; t < terms; ++t) {
    Vector of_b;
    std::memcpy(&of_b, b + t * b_pitch, sizeof(of_b));
    for (int row = 0; row < kBlockRows; ++row) {
      const Vector term = a[row * a_pitch + t] * of_b;
      value[row] += term;
      magnitude[row] += reinterpret_cast<Vector>(reinterpret_cast<Bits>(term) & without_sign);
    }
  }
  std::memcpy(out.value, value, sizeof(value));
  std::memcpy(out.magnitude, magnitude, sizeof(magnitude));
}

// `count` rounded up to whole blocks.
constexpr std::int64_t round_up(std::int64_t count, int block) { return (count + block - 1) / block * block; }

}  // namespace ladder::reference
