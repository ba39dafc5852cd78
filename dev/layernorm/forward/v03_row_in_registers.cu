// Idea:   the threads of a row, a warp for a short one and a block for a long one, keep it in registers: x is read once. The
//         first sum gives a rough mean, the second one sums distances from it, which corrects the mean and gives the
//         variance.
// Parent: v02.
// Why:    v02 reads a row twice, and gives each the same 256 threads, most of them idle where rows are short. Here a warp of
//         its own has rows of up to 256 vectors, without a barrier. Limiter: rows no longer than a block's registers, and a
//         block a row: few long rows leave SMs idle.
// Needs:  rows of at most 32768 elements, or 8192 where a row is no whole vectors of sixteen bytes.

#include "dev/layernorm/row_sum.h"
#include "dev/layernorm/rows.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/maximum.h"

namespace ladder::layernorm {
namespace {

constexpr int kMinThreads = 128;  // of a block
constexpr int kMaxVectors = 8192;
constexpr int kMaxElements = 32768;  // as fp32 in a block's registers

constexpr int block_threads(int row_threads) { return row_threads < kMinThreads ? kMinThreads : row_threads; }
template <int kRowThreads>
inline constexpr int kBlockThreads = block_threads(kRowThreads);  // the same for the kernel

template <class T, int kWidth, int kRowThreads, int kVectors>
__global__ void __launch_bounds__(kBlockThreads<kRowThreads>)
    layernorm_forward_v03_kernel(Problem p, Forward::Tensors t) {
  constexpr int kRows = kBlockThreads<kRowThreads> / kRowThreads;
  LADDER_SHARED(float2, parts, [2][kRowThreads / 32]);
  const int row = static_cast<int>(blockIdx.x) * kRows + static_cast<int>(threadIdx.x) / kRowThreads;
  const int first = static_cast<int>(threadIdx.x) % kRowThreads;
  const int valid = row < p.m ? count_from(first, kRowThreads, p.n / kWidth) : 0;
  const std::int64_t start = static_cast<std::int64_t>(row) * p.n;
  const float inverse_n = 1.0f / static_cast<float>(p.n);
  ptx::grid_dependency_wait();

  // Load the row, and sum it: vectors that are not there are zeros.
  const T* const x = static_cast<const T*>(t.x) + start;
  Bits<T, kWidth> x_vectors[kVectors] = {};
  float2 sums{load_and_sum<kWidth>(x, first, kRowThreads, valid, x_vectors), 0};
  Normaliser s{.pivot = sum_row<kRowThreads>(sums, parts[0]).x * inverse_n};

  // Distances from that mean and their squares. The mean of the distances is what the rounding of the first sum took away.
  sums = sum_row<kRowThreads>(distances<T, kWidth>(s.pivot, x_vectors, valid), parts[1]);
  s.delta = sums.x * inverse_n;
  s.rstd = rsqrtf(ptx::maximum(fmaf(-sums.x, s.delta, sums.y), 0.0f) * inverse_n + p.eps);

  // Output.
  T* const y = static_cast<T*>(t.y) + start;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (v >= valid) break;
    const int index = first + v * kRowThreads;
    float gamma[kWidth];
    float beta[kWidth];
    load_parameters(t.gamma, index, gamma);
    load_parameters(t.beta, index, beta);
    store_wide<kWidth>(y, index, normalised<T, kWidth>(x_vectors[v], s, gamma, beta));
  }
  ptx::grid_dependency_launch();
  if (first == 0 && row < p.m) store_statistics(t, row, s);
}

template <class T, int kWidth, int kRowThreads, int kVectors>
void launch_rows(const Problem& p, const Forward::Tensors& t, Stream stream) {
  constexpr int kThreads = block_threads(kRowThreads);
  ladder::launch(layernorm_forward_v03_kernel<T, kWidth, kRowThreads, kVectors>,
                 {.grid = static_cast<unsigned>(ceil_div(p.m, kThreads / kRowThreads)),
                  .block = kThreads,
                  .overlaps_previous = true},
                 stream, p, t);
}

const char* supports(const Problem& p) {
  if (p.n > kMaxElements) return "a row must be at most 32768 elements";
  return p.vectors() <= kMaxVectors ? nullptr : "a row that is no whole 16-byte vectors must be at most 8192 elements";
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  const int vectors = p.vectors();
  dispatch_width(p.dtype, p.in_vectors(), [&](auto element, auto width) {
    using T = decltype(element);
    constexpr int kWidth = decltype(width)::value;
    if (vectors <= 32 * 2) return launch_rows<T, kWidth, 32, 2>(p, t, stream);
    if (vectors <= 32 * 8) return launch_rows<T, kWidth, 32, 8>(p, t, stream);
    if (vectors <= 256 * 4) return launch_rows<T, kWidth, 256, 4>(p, t, stream);
    if (vectors <= 512 * 4) return launch_rows<T, kWidth, 512, 4>(p, t, stream);
    // Two blocks an SM: one loads while the other computes.
    if (vectors <= 512 * 8) return launch_rows<T, kWidth, 512, 8>(p, t, stream);
    if constexpr (kWidth <= 4) launch_rows<T, kWidth, 1024, 8>(p, t, stream);
  });
}

}  // namespace
}  // namespace ladder::layernorm

LADDER_VERSION(ladder::layernorm::Forward, {.launch = ladder::layernorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::layernorm::supports})
