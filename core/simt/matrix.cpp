// Matrix instructions, computed once all lanes have arrived: operands are gathered from the lanes' registers into plain
// matrices, multiplied, and dealt out again. Products of two 16-bit or tf32 numbers are exact in fp32; sums are fp32,
// in order of k. (Tensor cores add in another order and truncate: compare within a bound, never bit for bit.)
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/simt/fiber.h"
#include "core/simt/formats.h"
#include "core/simt/ldmatrix.h"
#include "core/simt/mma.h"
#include "core/simt/order.h"
#include "core/simt/wmma.h"

namespace ladder::simt::detail {

namespace {

// d += a b
template <int m, int n, int k>
void multiply(const float (&a)[m][k], const float (&b)[k][n], float (&d)[m][n]) {
  for (int i = 0; i < m; ++i) {
    for (int l = 0; l < k; ++l) {
      for (int j = 0; j < n; ++j) d[i][j] += a[i][l] * b[l][j];
    }
  }
}

// Layouts as documented in dev/ptx/mma.h.
template <float (*convert)(std::uint32_t)>
void multiply_m16n8k16(void* const (&operands)[kWarpSize]) {
  float a[16][16], b[16][8], d[16][8];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const Mma& fragments = *static_cast<const Mma*>(operands[lane]);
    const int g = lane / 4;
    const int t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      const int shift = 16 * half;
      const int c = 2 * t + half;
      auto element = [&](std::uint32_t word) { return convert(word >> shift & 0xffff); };
      a[g][c] = element(fragments.a[0]);
      a[g + 8][c] = element(fragments.a[1]);
      a[g][c + 8] = element(fragments.a[2]);
      a[g + 8][c + 8] = element(fragments.a[3]);
      b[c][g] = element(fragments.b[0]);
      b[c + 8][g] = element(fragments.b[1]);
      d[g][c] = fragments.d[half];
      d[g + 8][c] = fragments.d[2 + half];
    }
  }
  multiply(a, b, d);
  for (int lane = 0; lane < kWarpSize; ++lane) {
    float* out = static_cast<const Mma*>(operands[lane])->d;
    for (int i = 0; i < 4; ++i) out[i] = d[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
  }
}

void deal_rows(void* const (&operands)[kWarpSize], bool transposed) {
  std::uint16_t rows[4][8][8];  // [matrix][row][column]
  for (int lane = 0; lane < kWarpSize; ++lane) {
    std::memcpy(rows[lane / 8][lane % 8], static_cast<const MatrixRow*>(operands[lane])->words, sizeof(rows[0][0]));
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    std::uint32_t* registers = static_cast<const MatrixRow*>(operands[lane])->registers;
    const int g = lane / 4;
    const int t = lane % 4;
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t low = transposed ? rows[j][2 * t][g] : rows[j][g][2 * t];
      const std::uint32_t high = transposed ? rows[j][2 * t + 1][g] : rows[j][g][2 * t + 1];
      registers[j] = low | high << 16;
    }
  }
}

void gather_rows(void* const (&operands)[kWarpSize]) {
  std::uint16_t rows[4][8][8];  // [matrix][row][column]
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const std::uint32_t* registers = static_cast<const StoredRow*>(operands[lane])->registers;
    const int g = lane / 4;
    const int t = lane % 4;
    for (int j = 0; j < 4; ++j) {
      rows[j][2 * t][g] = static_cast<std::uint16_t>(registers[j]);
      rows[j][2 * t + 1][g] = static_cast<std::uint16_t>(registers[j] >> 16);
    }
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    void* const row = static_cast<const StoredRow*>(operands[lane])->row;
    std::memcpy(row, rows[lane / 8][lane % 8], sizeof(rows[0][0]));
    order::wrote(row, sizeof(rows[0][0]), running().where);
  }
}

}  // namespace

void complete_mma_m16n8k16_bf16(void* const (&operands)[kWarpSize], unsigned) {
  multiply_m16n8k16<from_bf16_bits>(operands);
}

void complete_mma_m16n8k16_f16(void* const (&operands)[kWarpSize], unsigned) {
  multiply_m16n8k16<from_f16_bits>(operands);
}

void complete_mma_m16n8k8_tf32(void* const (&operands)[kWarpSize], unsigned) {
  float a[16][8], b[8][8], d[16][8];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const Mma& fragments = *static_cast<const Mma*>(operands[lane]);
    const int g = lane / 4;
    const int t = lane % 4;
    a[g][t] = from_tf32_bits(fragments.a[0]);
    a[g + 8][t] = from_tf32_bits(fragments.a[1]);
    a[g][t + 4] = from_tf32_bits(fragments.a[2]);
    a[g + 8][t + 4] = from_tf32_bits(fragments.a[3]);
    b[t][g] = from_tf32_bits(fragments.b[0]);
    b[t + 4][g] = from_tf32_bits(fragments.b[1]);
    for (int i = 0; i < 4; ++i) d[g + i / 2 * 8][2 * t + i % 2] = fragments.d[i];
  }
  multiply(a, b, d);
  for (int lane = 0; lane < kWarpSize; ++lane) {
    float* out = static_cast<const Mma*>(operands[lane])->d;
    for (int i = 0; i < 4; ++i) out[i] = d[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
  }
}

void complete_ldmatrix_x4(void* const (&operands)[kWarpSize], unsigned) { deal_rows(operands, false); }
void complete_ldmatrix_x4_trans(void* const (&operands)[kWarpSize], unsigned) { deal_rows(operands, true); }
void complete_stmatrix_x4_trans(void* const (&operands)[kWarpSize], unsigned) { gather_rows(operands); }

}  // namespace ladder::simt::detail

namespace nvcuda::wmma::detail {

namespace {

using ladder::simt::detail::kWarpSize;

template <class T>
float widen(const typename Storage<T>::type& x) {
  if constexpr (std::is_same_v<T, __half>) {
    return ladder::simt::detail::from_f16_bits(std::bit_cast<std::uint16_t>(x));
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return ladder::simt::detail::from_bf16_bits(std::bit_cast<std::uint16_t>(x));
  } else if constexpr (std::is_same_v<T, precision::tf32>) {
    return ladder::simt::detail::from_tf32_bits(std::bit_cast<std::uint32_t>(x));
  } else {
    return x;
  }
}

// Gather a fragment in the layout of for_each_element() in wmma.h: lane l holds elements [l * kRun, (l + 1) * kRun) of
// the row-major matrix. Lanes beyond the matrix's end hold its elements again.
template <class Use, int m, int n, int k, class T, int rows, int cols>
void gather(void* const (&operands)[kWarpSize], const void* Mma::*member, float (&matrix)[rows][cols]) {
  constexpr int kRun = kNumElements<Use, m, n, k, T>;
  float* flat = &matrix[0][0];
  for (int lane = 0; lane < rows * cols / kRun; ++lane) {
    const auto* x = static_cast<const typename Storage<T>::type*>(static_cast<const Mma*>(operands[lane])->*member);
    for (int i = 0; i < kRun; ++i) flat[lane * kRun + i] = widen<T>(x[i]);
  }
}

}  // namespace

template <int m, int n, int k, class T, class D, class C>
void complete_mma(void* const (&operands)[kWarpSize], unsigned) {
  float a[m][k], b[k][n], d[m][n];
  gather<matrix_a, m, n, k, T>(operands, &Mma::a, a);
  gather<matrix_b, m, n, k, T>(operands, &Mma::b, b);
  gather<accumulator, m, n, k, C>(operands, &Mma::c, d);
  ladder::simt::detail::multiply(a, b, d);
  constexpr int kRun = kNumElements<accumulator, m, n, k, D>;
  const float* flat = &d[0][0];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    D* out = static_cast<D*>(static_cast<const Mma*>(operands[lane])->d);
    for (int i = 0; i < kRun; ++i) {
      if constexpr (std::is_same_v<D, __half>)
        out[i] = __float2half_rn(flat[lane * kRun + i]);
      else
        out[i] = flat[lane * kRun + i];
    }
  }
}

#define LADDER_WMMA(m, n, k, T, D, C) template void complete_mma<m, n, k, T, D, C>(void* const(&)[kWarpSize], unsigned);
#define LADDER_WMMA_SHAPE(m, n)                      \
  LADDER_WMMA(m, n, 16, __nv_bfloat16, float, float) \
  LADDER_WMMA(m, n, 16, __half, float, float)        \
  LADDER_WMMA(m, n, 16, __half, __half, __half)      \
  LADDER_WMMA(m, n, 16, __half, float, __half)       \
  LADDER_WMMA(m, n, 16, __half, __half, float)
LADDER_WMMA_SHAPE(16, 16)
LADDER_WMMA_SHAPE(32, 8)
LADDER_WMMA_SHAPE(8, 32)
LADDER_WMMA(16, 16, 8, precision::tf32, float, float)
#undef LADDER_WMMA_SHAPE
#undef LADDER_WMMA

}  // namespace nvcuda::wmma::detail
