// nvcuda::wmma as mma.h has it under nvcc: warp matrix fragments of fp16, bf16 and tf32 with fp16 or fp32 accumulators.
//
// Which lane holds which element is this file's own choice, unlike any GPU's, so that a kernel that relies on a layout
// breaks here. Element counts are those of mma.h; where a fragment has more places than the matrix has elements (fp16
// operands), every element is held by several lanes, as on the GPU. A new fragment is NaN.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/simt/runtime.h"

namespace nvcuda::wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };

// fp32 to tf32, to nearest, ties away from zero; like the instruction cvt.rna.tf32.f32, which leaves NaN and infinity.
inline float __float_to_tf32(float x) {
  constexpr std::uint32_t kDropped = 0x1fff;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  // NaN and infinity lose the low bits unrounded, as an H200 does it: a NaN that has only those becomes infinity.
  if ((bits & 0x7f800000u) == 0x7f800000u) return std::bit_cast<float>(bits & ~kDropped);
  return std::bit_cast<float>((bits + 0x1000u) & ~kDropped);
}

namespace detail {

template <int m, int n, int k, class T>
inline constexpr bool kHasShape = std::is_same_v<T, precision::tf32>
                                      ? (m == 16 && n == 16 && k == 8)
                                      : (k == 16 &&
                                         ((m == 16 && n == 16) || (m == 32 && n == 8) || (m == 8 && n == 32)));

template <class T>
struct Storage {
  using type = T;
};
template <>
struct Storage<precision::tf32> {
  using type = float;
};

template <class Use, int m, int n, int k>
inline constexpr int kRows = std::is_same_v<Use, matrix_b> ? k : m;
template <class Use, int m, int n, int k>
inline constexpr int kCols = std::is_same_v<Use, matrix_a> ? k : n;

template <class Use, int m, int n, int k, class T>
inline constexpr int kNumElements =
    std::is_same_v<T, __half> && !std::is_same_v<Use, accumulator> ? 16
                                                                   : kRows<Use, m, n, k> * kCols<Use, m, n, k> / 32;

}  // namespace detail

template <class Use, int m, int n, int k, class T, class Layout = void>
class alignas(8) fragment {
  static constexpr bool kIsAccumulator = std::is_same_v<Use, accumulator>;
  static_assert(kIsAccumulator ? (std::is_same_v<T, float> || std::is_same_v<T, __half>)
                               : (std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16> ||
                                  std::is_same_v<T, precision::tf32>),
                "an element type that the emulator has");
  static_assert(kIsAccumulator ? (detail::kHasShape<m, n, k, __half> || detail::kHasShape<m, n, k, precision::tf32>)
                               : detail::kHasShape<m, n, k, T>,
                "a shape that mma.h has for this element type");

 public:
  using element_type = T;
  using storage_element_type = typename detail::Storage<T>::type;
  enum { num_elements = detail::kNumElements<Use, m, n, k, T>, num_storage_elements = num_elements };

  fragment() { std::memset(static_cast<void*>(x), 0xff, sizeof(x)); }

  storage_element_type x[num_elements];
};

namespace detail {

// The emulator's layout: elements in row-major order are dealt out in runs, starting again once all are dealt.
template <class Use, int m, int n, int k, class T, class L, class F>
void for_each_element(const fragment<Use, m, n, k, T, L>&, F f) {
  constexpr int kNumCols = kCols<Use, m, n, k>;
  constexpr int kSize = kRows<Use, m, n, k> * kNumCols;
  constexpr int kRun = kNumElements<Use, m, n, k, T>;
  const int first = static_cast<int>(ladder::simt::detail::current->lane) * kRun % kSize;
  for (int i = 0; i < kRun; ++i) f(i, (first + i) / kNumCols, (first + i) % kNumCols);
}

struct Access {
  const void* pointer;
  unsigned ldm;
  ladder::simt::Where where;
};
// Checks that all lanes gave the same address and stride. In collectives.cpp.
void complete_access(void* const (&operands)[ladder::simt::detail::kWarpSize], unsigned mask);

inline constexpr ladder::simt::detail::Collective kLoad{"wmma::load_matrix_sync", true, false, complete_access};
inline constexpr ladder::simt::detail::Collective kStore{"wmma::store_matrix_sync", true, false, complete_access};

template <class Element>
void check_access(const void* pointer, unsigned ldm, ladder::simt::Where where) {
  ladder::simt::detail::check_aligned(pointer, 32, "wmma: matrix is not aligned to 256 bits", where);
  if (ldm * sizeof(Element) % 16 != 0) ladder::simt::detail::fault("wmma: stride is not a multiple of 16 bytes", where);
}

template <class Use, int m, int n, int k, class T, class L, class Element>
void load(fragment<Use, m, n, k, T, L>& f, const Element* p, unsigned ldm, bool rows, ladder::simt::Where where) {
  check_access<Element>(p, ldm, where);
  for_each_element(f, [&](int i, int row, int col) { f.x[i] = rows ? p[row * ldm + col] : p[col * ldm + row]; });
  Access operands{p, ldm, where};
  ladder::simt::detail::join(kLoad, ladder::simt::detail::kFullMask, &operands, where);
}

struct Mma {
  void* d;
  const void* a;
  const void* b;
  const void* c;
};
// In matrix.cpp, for every combination of mma.h. D and C are the element types of the accumulators.
template <int m, int n, int k, class T, class D, class C>
void complete_mma(void* const (&operands)[ladder::simt::detail::kWarpSize], unsigned mask);

template <int m, int n, int k, class T, class D, class C>
inline constexpr ladder::simt::detail::Collective kMma{"wmma::mma_sync", true, false, complete_mma<m, n, k, T, D, C>};

}  // namespace detail

template <class Use, int m, int n, int k, class T, class L>
void fill_fragment(fragment<Use, m, n, k, T, L>& f,
                   const std::type_identity_t<typename detail::Storage<T>::type>& value) {
  for (auto& element : f.x) element = value;
}

// Lanes read when they arrive and write when they leave: what a lane may not rely on without __syncwarp is not there.
//
// Matrices start at 32-byte aligned addresses, and rows (columns, if col_major) are `ldm` elements apart, a multiple of
// 16 bytes. All lanes give the same arguments.
template <class Use, int m, int n, int k, class T, class L>
requires(!std::is_same_v<Use, accumulator>) void load_matrix_sync(
    fragment<Use, m, n, k, T, L>& f, const typename detail::Storage<T>::type* p, unsigned ldm,
    ladder::simt::Where where = ladder::simt::Where::here()) {
  detail::load(f, p, ldm, std::is_same_v<L, row_major>, where);
}

template <int m, int n, int k, class T>
void load_matrix_sync(fragment<accumulator, m, n, k, T>& f, const std::type_identity_t<T>* p, unsigned ldm,
                      layout_t layout, ladder::simt::Where where = ladder::simt::Where::here()) {
  detail::load(f, p, ldm, layout == mem_row_major, where);
}

template <int m, int n, int k, class T>
void store_matrix_sync(std::type_identity_t<T>* p, const fragment<accumulator, m, n, k, T>& f, unsigned ldm,
                       layout_t layout, ladder::simt::Where where = ladder::simt::Where::here()) {
  detail::check_access<T>(p, ldm, where);
  detail::Access operands{p, ldm, where};
  ladder::simt::detail::join(detail::kStore, ladder::simt::detail::kFullMask, &operands, where);
  detail::for_each_element(
      f, [&](int i, int row, int col) { p[layout == mem_row_major ? row * ldm + col : col * ldm + row] = f.x[i]; });
}

// d = a b + c
template <int m, int n, int k, class T, class LA, class LB, class D, class C>
void mma_sync(fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, T, LA>& a,
              const fragment<matrix_b, m, n, k, T, LB>& b, const fragment<accumulator, m, n, k, C>& c,
              ladder::simt::Where where = ladder::simt::Where::here()) {
  detail::Mma operands{d.x, a.x, b.x, c.x};
  ladder::simt::detail::join(detail::kMma<m, n, k, T, D, C>, ladder::simt::detail::kFullMask, &operands, where);
}

}  // namespace nvcuda::wmma
