// How a warp stores 16 rows of a wide tile, in lines of 128 bytes, with bias, residual and the rest of the epilogue.
#pragma once

#include "dev/gemm/fragment_store.h"
#include "dev/gemm/warp_store.h"

namespace ladder::gemm {

inline constexpr int kStoreColumns = 64;  // that a warp stores at a time

// What a warp stores its sums through: fp32 needs nothing.
template <class T>
inline constexpr int kWarpStoreBytes = WarpStore<T, kStoreColumns>::kBytes;
template <>
inline constexpr int kWarpStoreBytes<float> = 0;
// Stores a warp's 16 rows of kColumns sums, some columns at a time. `staging`: the warp's kWarpStoreBytes<T> of shared memory.
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
