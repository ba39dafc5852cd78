// Idea:   WMMA on tensor cores, fed by cp.async into two buffers: the next chunk is loaded while this one multiplies.
// Parent: v03.
// Why:    v03 is limited by the FMA pipe; tensor cores multiply thirty times as fast in bf16, and then the layer is bound by
//         memory. w is read in place: WMMA takes B in either major. Limiter left: one chunk of prefetch, one tile for all
//         shapes, and WMMA's loads, which a kernel cannot schedule.
// Needs:  nothing; cp.async where n and k are multiples of 16 bytes, else single elements, synchronously.

#include "dev/gemm/concat_operand.h"
#include "dev/gemm/wmma_double_buffer.h"

namespace ladder::gemm {
namespace {

// dx [m, k] = dy [m, n] times w [n, k]: w's rows are the rows of B.
__host__ __device__ Product product(const Problem& p) { return {.rows = p.m, .columns = p.k, .terms = p.n}; }
using LayoutB = nvcuda::wmma::row_major;

struct Tile {
  static constexpr int kThreads = 256;
  static constexpr int kBlockM = 128;
  static constexpr int kBlockN = 64;
  static constexpr int kWarpsM = 4;  // a warp has 32 x 32 sums
};

template <class T, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    gemm_dgrad_v04_kernel(Problem p, const T* dy, const T* w, Epilogue<T> epilogue, ConcatOperand<T> dx) {
  wmma_double_buffer<Tile, LayoutB, kVectors>(product(p), dy, w, epilogue, dx);
}

void launch(const Problem& p, const Dgrad::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const auto kernel =
        p.n % kRun<T> == 0 && p.k % kRun<T> == 0 ? gemm_dgrad_v04_kernel<T, true> : gemm_dgrad_v04_kernel<T, false>;
    const auto blocks = static_cast<unsigned>(num_tiles<Tile>(product(p)));
    constexpr std::size_t kSmemBytes = WmmaChunk<T, Tile, LayoutB>::kSmemBytes;
    ladder::launch(kernel, {.grid = blocks, .block = Tile::kThreads, .dynamic_smem = kSmemBytes}, stream, p,
                   static_cast<const T*>(t.dy), static_cast<const T*>(t.w), epilogue_of<T>(t), output_of<T>(p, t));
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Dgrad,
               {.launch = ladder::gemm::launch,
                .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .min_arch = 80,
                .error_growth = 4})  // in tf32, WMMA adds four products at a time, truncating each time
