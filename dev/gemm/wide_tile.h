// Problems, tensor maps and stores of the versions with tiles of 128 x 256. The TMA copies a step of 128 bytes a row; a
// warp stores 16 rows, in lines of 128 bytes, with bias, residual and the rest of the epilogue.
#pragma once

#include "dev/gemm/fragment_store.h"
#include "dev/gemm/product.h"
#include "dev/gemm/warp_store.h"
#include "dev/ptx/tma.h"

namespace ladder::gemm {

template <class T>
inline constexpr int kTerms = kStepRowBytes / static_cast<int>(sizeof(T));  // K of a step

inline const char* wide_supports(const Problem& p) {
  if (p.dtype == Dtype::f32 && !p.allow_tf32) return "fp32 products would be rounded to TF32: needs allow_tf32";
  if (p.k * static_cast<int>(size_of(p.dtype)) % 16 != 0) return "rows of x and w are not of whole 16 bytes";
  return one_x_only(p);
}

// Tensor map of x or w, [rows, k], in boxes of one step by `box_rows` rows.
template <class T>
ptx::TensorMap map_of_steps(const Problem& p, const void* matrix, int rows, std::uint32_t box_rows) {
  return ptx::make_tensor_map(p.dtype, matrix, {static_cast<std::uint64_t>(p.k), static_cast<std::uint64_t>(rows), 1},
                              {static_cast<std::uint32_t>(kTerms<T>), box_rows, 1});
}

inline constexpr int kStoreColumns = 64;  // that a warp stores at a time

// Staging of a warp's stores, in bytes: fp32 needs none.
template <class T>
inline constexpr int kWarpStoreBytes = WarpStore<T, kStoreColumns>::kBytes;
template <>
inline constexpr int kWarpStoreBytes<float> = 0;

// Store a warp's 16 rows of kColumns sums, kStoreColumns at a time. `staging` has kWarpStoreBytes<T> for the warp.
template <int kColumns, class T, class P>
__device__ __forceinline__ void store_wide(unsigned char* staging, const float (&acc)[kColumns / 2], int row0, int col0,
                                           const Product& c, const Epilogue<T, P>& epilogue, T* y) {
#pragma unroll
  for (int part = 0; part < kColumns / kStoreColumns; ++part, col0 += kStoreColumns) {
    const auto& sums = reinterpret_cast<const float(&)[kStoreColumns / 2]>(acc[part * kStoreColumns / 2]);
    if constexpr (sizeof(T) == 2) {
      using Store = WarpStore<T, kStoreColumns>;
      if (epilogue.residual) Store::fetch(staging, epilogue.residual, row0, col0, c.rows, c.columns);
      ptx::cp_async_commit();
      float2 bias[Store::kPairs];
      Store::fetch_bias(bias, epilogue.bias, col0, c.columns);
      ptx::cp_async_wait<0>();
      __syncwarp();
      Store::store(staging, sums, bias, row0, col0, c.rows, c.columns, epilogue, y);
    } else {
      FragmentStore<kStoreColumns>::store(sums, row0, col0, c.rows, c.columns, epilogue, y);
    }
  }
}

}  // namespace ladder::gemm
