// Idea:   a block a row reads it twice for three times, in vectors of sixteen bytes: count, mean and squared deviations of a
//         few vectors at a time, merged by Chan's formula in a thread, a warp and the block.
// Parent: v01.
// Why:    v01 has one pass for the mean and one for the variance, 4 bytes a thread in flight and eight barriers a sum; here
//         64 bytes and one barrier. Limiter: the second read, and one block a row whatever the row's length.
// Needs:  nothing; vectors are of sixteen bytes where a row is whole vectors, else single elements.

#include "dev/layernorm/rows.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::layernorm {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // of a thread, in flight at a time

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) layernorm_forward_v02_kernel(Problem p, Forward::Tensors t) {
  const int row = blockIdx.x;
  const int vectors = p.n / kWidth;
  const auto* const x = static_cast<const T*>(t.x) + static_cast<std::int64_t>(row) * p.n;
  auto* const y = static_cast<T*>(t.y) + static_cast<std::int64_t>(row) * p.n;
  ptx::grid_dependency_wait();

  // Statistics. Each turn's vectors are summed about their own mean, so that no sum of squares meets a large mean.
  const float pivot = to_float(x[0]);
  Moments local;
  for (int first = threadIdx.x; first < vectors; first += kThreads * kVectors) {
    const int valid = count_from(first, kThreads, vectors);
    Bits<T, kWidth> x_vectors[kVectors] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v < valid) x_vectors[v] = load_wide<kWidth>(x, first + v * kThreads);
    }
    local = merge(local, moments_about<T, kWidth>(pivot, x_vectors, valid));
  }
  const Normaliser s = normaliser_of(p, pivot, merge_block<kThreads>(local));

  // Output.
#pragma unroll 4
  for (int i = threadIdx.x; i < vectors; i += kThreads) {
    float gamma[kWidth];
    float beta[kWidth];
    load_parameters(t.gamma, i, gamma);
    load_parameters(t.beta, i, beta);
    store_wide<kWidth>(y, i, normalised<T, kWidth>(load_wide<kWidth>(x, i), s, gamma, beta));
  }
  ptx::grid_dependency_launch();
  if (threadIdx.x == 0) store_statistics(t, row, s);
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, p.in_vectors(), [&](auto element, auto width) {
    ladder::launch(layernorm_forward_v02_kernel<decltype(element), decltype(width)::value>,
                   {.grid = static_cast<unsigned>(p.m), .block = kThreads, .overlaps_previous = true}, stream, p, t);
  });
}

}  // namespace
}  // namespace ladder::layernorm

LADDER_VERSION(ladder::layernorm::Forward, {.launch = ladder::layernorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})
