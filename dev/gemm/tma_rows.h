// Restrictions of the TMA on gemm's matrices, and its copies of x.
#pragma once

#include "dev/common/wgmma_step.h"
#include "dev/gemm/gemm.h"
#include "dev/ptx/mbarrier.h"
#include "dev/ptx/tma.h"

namespace ladder::gemm {

inline constexpr int kBoxColumns = 64;  // 16-bit elements: one swizzled row
static_assert(kBoxColumns == kStepTerms16);

// Returns why the TMA cannot copy rows of n and of k elements, or null.
inline const char* rows_for_tma(const Problem& p) {
  return p.n % 8 == 0 && p.k % 8 == 0
             ? nullptr
             : "n or k is not a multiple of 8, but the TMA's strides are multiples of 16 bytes";
}

// Returns why a box of columns would lie in both parts of x, or null.
inline const char* full_boxes(const Problem& p) {
  return p.split % kBoxColumns == 0 ? nullptr : "the first part of x is not a multiple of 64 columns";
}

inline const char* rows_in_boxes(const Problem& p) {
  const char* const why = rows_for_tma(p);
  return why ? why : full_boxes(p);
}

// Tensor maps of x in boxes of kBoxColumns columns; with `split`, one for each part of x.
struct MapsOfX {
  ptx::TensorMap first, remainder;
  int split;

  __device__ __forceinline__ void prefetch() const {
    ptx::tma_prefetch(first);
    if (split > 0) ptx::tma_prefetch(remainder);
  }
  __device__ __forceinline__ void load(unsigned char* to, ptx::Mbarrier* full, int column, int row) const {
    const bool in_remainder = split > 0 && column >= split;
    ptx::tma_load(to, in_remainder ? remainder : first, full, in_remainder ? column - split : column, row, 0);
  }
};

inline MapsOfX maps_of_x(const Problem& p, const void* x, const void* x_rest, int rows) {
  const auto map = [&](const void* part, int columns) {
    return ptx::make_tensor_map(p.dtype, part,
                                {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(p.m), 1},
                                {kBoxColumns, static_cast<unsigned>(rows), 1});
  };
  const ptx::TensorMap first = map(x, p.split > 0 ? p.split : p.k);
  return {.first = first, .remainder = p.split > 0 ? map(x_rest, p.k - p.split) : first, .split = p.split};
}

}  // namespace ladder::gemm
