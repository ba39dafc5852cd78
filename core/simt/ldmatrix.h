// The emulated branch of dev/ptx/ldmatrix.h. Every lane reads its row when it arrives; the rows change hands, or are
// written, when all have.
#pragma once

#include <cstdint>

#include "core/simt/cp_async.h"
#include "core/simt/runtime.h"

namespace ladder::simt {

namespace detail {

struct MatrixRow {
  std::uint32_t words[4];    // in: the row this lane points at, eight 16-bit elements
  std::uint32_t* registers;  // out
};

void complete_ldmatrix_x4(void* const (&operands)[kWarpSize], unsigned mask);
void complete_ldmatrix_x4_trans(void* const (&operands)[kWarpSize], unsigned mask);

inline constexpr Collective kLdmatrix{"ldmatrix.x4", true, false, complete_ldmatrix_x4};
inline constexpr Collective kLdmatrixTrans{"ldmatrix.x4.trans", true, false, complete_ldmatrix_x4_trans};

struct StoredRow {
  void* row;  // out: the one this lane points at
  const std::uint32_t* registers;
};

void complete_stmatrix_x4_trans(void* const (&operands)[kWarpSize], unsigned mask);

inline constexpr Collective kStmatrixTrans{"stmatrix.x4.trans", true, false, complete_stmatrix_x4_trans};

inline void check_row(const void* row, const char* alignment, const char* place, Where where) {
  constexpr int kRowBytes = 16;
  check_aligned(row, kRowBytes, alignment, where);
  if (!is_shared(row, kRowBytes)) fault(place, where);
}

}  // namespace detail

inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, bool transposed, Where where) {
  detail::check_row(row, "ldmatrix: row is not aligned to 16 bytes",
                    "ldmatrix: row is not in the block's shared memory", where);
  const auto* const words = static_cast<const detail::Word*>(row);
  detail::MatrixRow operands{{words[0], words[1], words[2], words[3]}, r};
  detail::join(transposed ? detail::kLdmatrixTrans : detail::kLdmatrix, detail::kFullMask, &operands, where);
}

inline void stmatrix_x4_trans(void* row, const std::uint32_t (&r)[4], Where where) {
  detail::check_row(row, "stmatrix: row is not aligned to 16 bytes",
                    "stmatrix: row is not in the block's shared memory", where);
  detail::StoredRow operands{row, r};
  detail::join(detail::kStmatrixTrans, detail::kFullMask, &operands, where);
}

}  // namespace ladder::simt
