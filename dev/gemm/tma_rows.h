// What the TMA asks of gemm's matrices.
#pragma once

#include "dev/gemm/gemm.h"

namespace ladder::gemm {

// Rows of n and of k elements; null, or why the TMA cannot copy them.
inline const char* rows_for_tma(const Problem& p) {
  return p.n % 8 == 0 && p.k % 8 == 0
             ? nullptr
             : "n or k is not a multiple of 8, but the TMA's strides are multiples of 16 bytes";
}

}  // namespace ladder::gemm
