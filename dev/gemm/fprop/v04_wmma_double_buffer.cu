// Idea:   WMMA on tensor cores, fed by cp.async into two buffers: the next chunk is loaded while this one multiplies.
// Parent: v03.
// Why:    v03 is limited by the FMA pipe; tensor cores multiply thirty times as fast in bf16, and then the layer is bound by
//         memory. cp.async goes straight to shared memory and zero-fills tails for free. Limiter left: one chunk of
//         prefetch is 24 KB a block at most, one tile serves all shapes, and a kernel cannot schedule WMMA's loads.
// Needs:  nothing; cp.async where k is a multiple of 16 bytes, else single elements, synchronously.

#include "dev/gemm/wmma_double_buffer.h"

namespace ladder::gemm {
namespace {

// y [m, n] = x [m, k] times w [n, k] transposed: w's rows are the columns of B.
__host__ __device__ Product product(const Problem& p) { return {.rows = p.m, .columns = p.n, .terms = p.k}; }
using LayoutB = nvcuda::wmma::col_major;

struct Tile {
  static constexpr int kThreads = 256;
  static constexpr int kBlockM = 128;
  static constexpr int kBlockN = 64;
  static constexpr int kWarpsM = 4;  // a warp has 32 x 32 sums
};

template <class T, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    gemm_fprop_v04_kernel(Problem p, const T* x, const T* w, Epilogue<T> epilogue, T* y) {
  wmma_double_buffer<Tile, LayoutB, kVectors>(product(p), x, w, epilogue, y);
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const auto kernel = p.k % kRun<T> == 0 ? gemm_fprop_v04_kernel<T, true> : gemm_fprop_v04_kernel<T, false>;
    const auto blocks = static_cast<unsigned>(num_tiles<Tile>(product(p)));
    constexpr std::size_t kSmemBytes = WmmaChunk<T, Tile, LayoutB>::kSmemBytes;
    ladder::launch(kernel, {.grid = blocks, .block = Tile::kThreads, .dynamic_smem = kSmemBytes}, stream, p,
                   static_cast<const T*>(t.x), static_cast<const T*>(t.w), epilogue_of<T, float>(p, t),
                   static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Fprop,
               {.launch = ladder::gemm::launch,
                .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::gemm::plain_only,
                .min_arch = 80,
                .error_growth = 4})  // in tf32, WMMA adds four products at a time, truncating each time
