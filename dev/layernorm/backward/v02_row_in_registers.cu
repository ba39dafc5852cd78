// Idea:   the threads of a row, a warp for a short one and a block for a long one, keep x and dy in registers. A block goes
//         from row to row and adds dgamma and dbeta of its columns up in shared memory, each thread in places of its own; a
//         second kernel adds up what the blocks have.
// Parent: v01.
// Why:    v01 reads x and dy three times; here once. The blocks are as many as the card has room for, so that their sums are
//         few. Limiter: a row of more than 4096 elements takes a block of 1024 threads, one an SM: its loads wait for the
//         row before.
// Needs:  rows of at most 16384 elements, or 4096 where a row is no whole vectors of sixteen bytes.

#include <algorithm>

#include "core/backend.h"
#include "dev/layernorm/gradient.h"
#include "dev/layernorm/parameter_gradients.h"
#include "dev/layernorm/row_sum.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::layernorm {
namespace {

constexpr int kWarpRowsThreads = 512;  // of a block whose warps have a row each
constexpr int kThreadsOfSm = 1024;     // with 64 registers each

// Elements of a row that a thread has: single ones take more registers.
constexpr int elements_per_thread(bool in_vectors) { return in_vectors ? 16 : 4; }

constexpr int block_threads(int row_threads) { return row_threads == 32 ? kWarpRowsThreads : row_threads; }

// The same for kernels.
template <int kWidth>
inline constexpr int kThreadElements = elements_per_thread(kWidth > 1);
template <int kRowThreads>
inline constexpr int kBlockThreads = block_threads(kRowThreads);

template <class T, int kWidth, int kRowThreads>
__global__ void __launch_bounds__(kBlockThreads<kRowThreads>, kThreadsOfSm / kBlockThreads<kRowThreads>)
    layernorm_backward_v02_kernel(Problem p, Backward::Tensors t, float2* partial) {
  constexpr int kThreads = kBlockThreads<kRowThreads>;
  constexpr int kRows = kThreads / kRowThreads;
  constexpr int kElementsPerThread = kThreadElements<kWidth>;
  constexpr int kVectors = kElementsPerThread / kWidth;
  LADDER_SHARED(float2, parts, [2][kRowThreads / 32]);
  LADDER_DYN_SMEM(smem);
  auto* const sums = reinterpret_cast<float2*>(smem);  // [kRows][kElementsPerThread][kRowThreads]: dbeta, dgamma
  const int first = static_cast<int>(threadIdx.x) % kRowThreads;
  const int row_in_block = static_cast<int>(threadIdx.x) / kRowThreads;
  float2* const local_sums = sums + row_in_block * kElementsPerThread * kRowThreads + first;
#pragma unroll
  for (int i = 0; i < kElementsPerThread; ++i) local_sums[i * kRowThreads] = {0, 0};
  ptx::grid_dependency_wait();

  int buffer = 0;
#pragma unroll 1
  for (int base = static_cast<int>(blockIdx.x) * kRows; base < p.m; base += static_cast<int>(gridDim.x) * kRows) {
    const int row = base + row_in_block;
    const int valid = row < p.m ? ceil_div(p.n / kWidth - first, kRowThreads) : 0;
    const std::int64_t start = static_cast<std::int64_t>(row) * p.n;
    const RowStatistics s = row < p.m ? statistics_of(t, row) : RowStatistics{};
    Bits<T, kWidth> x[kVectors];
    Bits<T, kWidth> dy[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v >= valid) break;
      x[v] = load_wide<kWidth>(static_cast<const T*>(t.x) + start, first + v * kRowThreads);
      dy[v] = load_wide<kWidth>(static_cast<const T*>(t.dy) + start, first + v * kRowThreads);
    }

    // The row's sums, and the columns'.
    float2 ab{0, 0};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v >= valid) break;
      float gamma[kWidth], xs[kWidth], dys[kWidth];
      load_parameters(t.gamma, first + v * kRowThreads, gamma);
      to_floats<T>(x[v], xs);
      to_floats<T>(dy[v], dys);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float xhat = xhat_of(xs[i], s);
        add_terms(gamma[i] * dys[i], xhat, ab);
        float2& column = local_sums[(v * kWidth + i) * kRowThreads];
        float2 sum = column;
        add_terms(dys[i], xhat, sum);
        column = sum;
      }
    }
    // Parts of the row before may still be read.
    ab = sum_row<kRowThreads>(ab, parts[buffer]);
    buffer ^= 1;
    const float2 means{ab.x / static_cast<float>(p.n), ab.y / static_cast<float>(p.n)};

#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (v >= valid) break;
      float gamma[kWidth];
      load_parameters(t.gamma, first + v * kRowThreads, gamma);
      store_wide<kWidth>(static_cast<T*>(t.dx) + start, first + v * kRowThreads,
                         gradient<T, kWidth>(x[v], dy[v], gamma, s, means));
    }
  }
  ptx::grid_dependency_launch();

  // The block's sums of every column.
  __syncthreads();
  for (int column = threadIdx.x; column < p.n; column += kThreads) {
    const int vector = column / kWidth;
    const int offset = (vector / kRowThreads * kWidth + column % kWidth) * kRowThreads + vector % kRowThreads;
    float2 sum = sums[offset];
    for (int i = 1; i < kRows; ++i) {
      const float2 v = sums[i * kElementsPerThread * kRowThreads + offset];
      sum.x += v.x, sum.y += v.y;
    }
    partial[static_cast<std::int64_t>(blockIdx.x) * p.n + column] = sum;
  }
}

int row_threads(const Problem& p) {
  const int elements = elements_per_thread(p.in_vectors());
  return p.n <= 32 * elements ? 32 : p.n <= 256 * elements ? 256 : 1024;
}

int blocks_of(const Problem& p) {
  const int threads = block_threads(row_threads(p));
  return std::min(ceil_div(p.m, threads / row_threads(p)),
                  std::max(1, backend::device().num_sms) * (kThreadsOfSm / threads));
}

const char* supports(const Problem& p) {
  if (p.n <= 1024 * elements_per_thread(p.in_vectors())) return nullptr;
  return p.in_vectors() ? "a row must be at most 16384 elements"
                        : "a row that is no whole 16-byte vectors must be at most 4096 elements";
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * static_cast<std::size_t>(blocks_of(p)) * p.n; }

template <class T, int kWidth, int kRowThreads>
void launch_rows(const Problem& p, const Backward::Tensors& t, float2* partial, Stream stream) {
  constexpr unsigned kThreads = kBlockThreads<kRowThreads>;
  ladder::launch(layernorm_backward_v02_kernel<T, kWidth, kRowThreads>,
                 {.grid = static_cast<unsigned>(blocks_of(p)),
                  .block = kThreads,
                  .dynamic_smem = sizeof(float2) * kThreads * kThreadElements<kWidth>,
                  .overlaps_previous = true},
                 stream, p, t, partial);
}

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const partial = static_cast<float2*>(workspace);  // [blocks][n]
  dispatch_width(p.dtype, p.in_vectors(), [&](auto element, auto width) {
    using T = decltype(element);
    constexpr int kWidth = decltype(width)::value;
    if (row_threads(p) == 32) return launch_rows<T, kWidth, 32>(p, t, partial, stream);
    if (row_threads(p) == 256) return launch_rows<T, kWidth, 256>(p, t, partial, stream);
    launch_rows<T, kWidth, 1024>(p, t, partial, stream);
  });
  launch_parameter_sums(p, partial, blocks_of(p), t, stream);
}

}  // namespace
}  // namespace ladder::layernorm

LADDER_VERSION(ladder::layernorm::Backward, {.launch = ladder::layernorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::layernorm::supports,
                                             .workspace_bytes = ladder::layernorm::workspace_bytes})
