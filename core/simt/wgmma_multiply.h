// The arithmetic of one wgmma.
#pragma once

#include "core/simt/wgmma.h"

namespace ladder::simt::detail {

// One row's share of a multiplication: 16 elements of 16 bits or 8 of tf32.
struct WgmmaRow {
  alignas(16) unsigned char bytes[32];
};

// d = a b^T, plus d where `accumulate`: a [64], b [n], d [4] times 16 rows of n. Products are exact in fp32; sums are
// fp32, in order of k.
void multiply_wgmma(WgmmaFormat format, int n, const WgmmaRow* a, const WgmmaRow* b, bool accumulate,
                    float* const (&d)[4]);

}  // namespace ladder::simt::detail
