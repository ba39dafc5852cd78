#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

namespace wmma = nvcuda::wmma;

// A tile goes from fragments through shared memory to a transposed matrix.
template <bool kBroken>
__global__ void transpose_kernel(const float* in, float* out) {
  LADDER_SHARED(alignas(32) float, tile, [256]);
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> f;
  wmma::load_matrix_sync(f, in, 16, wmma::mem_row_major);
  wmma::store_matrix_sync(tile, f, 16, wmma::mem_row_major);
  if (!kBroken) __syncwarp();
  for (unsigned i = threadIdx.x; i < 256; i += 32) out[i] = tile[i % 16 * 16 + i / 16];
}

bool run(bool broken) {
  Guarded<float> in(256), out(256, -1);
  for (int i = 0; i < 256; ++i) in[i] = static_cast<float>(i);
  launch(broken ? transpose_kernel<true> : transpose_kernel<false>, {1, 32}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < 256; ++i) right &= out[i] == in[i % 16 * 16 + i / 16];
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("syncwarp_after_wmma_store", "no __syncwarp before reading a tile that wmma stored",
             ({.value = true, .order = true}), ladder::faults::run);
