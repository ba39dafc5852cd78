// Idea:   long rows are cut into chunks of columns. A block keeps gamma of its columns in registers and goes down the rows:
//         it adds up dgamma and dbeta in registers, and leaves its part of every row's A and B in the workspace. A second
//         kernel adds these parts up in a fixed order, and a third one goes down the rows again for dx.
// Parent: v02.
// Why:    v02 has a block a row, and none for a row that a block cannot hold: sixteen rows leave most of the card idle. Here
//         every SM works, and gamma is read twice in all. The last kernel begins with the columns that the first one ended
//         with: they are still in the L2. Limiter: the rest of x and dy comes twice from memory.
// Needs:  nothing; vectors are of sixteen bytes where a row is whole vectors, else single elements.

#include "dev/layernorm/column_chunks.h"
#include "dev/layernorm/gradient.h"
#include "dev/layernorm/parameter_gradients.h"
#include "dev/layernorm/row_sum.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::layernorm {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxRows = 128;  // of a block: their parts are in shared memory
constexpr int kSumThreads = 512;

// `sums` [groups][n], dbeta and dgamma of a group of rows, or null where there is one group.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    layernorm_backward_v03_sums_kernel(Problem p, Backward::Tensors t, ColumnChunks columns, float2* parts,
                                       float2* sums) {
  constexpr int kVectorsPerThread = kChunkVectors<kWidth>;
  LADDER_SHARED(float2, warp_sums, [kMaxRows][kWarps]);
  const int chunk = static_cast<int>(blockIdx.x) % columns.chunks;
  const int group = static_cast<int>(blockIdx.x) / columns.chunks;
  const int first_row = group * columns.rows_per_group;
  const int rows = min(columns.rows_per_group, p.m - first_row);
  const int first = chunk * kThreads * kVectorsPerThread + static_cast<int>(threadIdx.x);
  const int valid = ceil_div(p.n / kWidth - first, kThreads);
  ptx::grid_dependency_wait();

  float gamma[kVectorsPerThread][kWidth] = {};
  float2 column_sums[kVectorsPerThread][kWidth] = {};
#pragma unroll
  for (int v = 0; v < kVectorsPerThread; ++v) {
    if (v < valid) load_parameters(t.gamma, first + v * kThreads, gamma[v]);
  }
#pragma unroll 2
  for (int r = 0; r < rows; ++r) {
    const std::int64_t start = static_cast<std::int64_t>(first_row + r) * p.n;
    const RowStatistics s = statistics_of(t, first_row + r);
    float2 ab{0, 0};
#pragma unroll
    for (int v = 0; v < kVectorsPerThread; ++v) {
      if (v >= valid) break;
      float xs[kWidth], dys[kWidth];
      to_floats<T>(load_wide<kWidth>(static_cast<const T*>(t.x) + start, first + v * kThreads), xs);
      to_floats<T>(load_wide<kWidth>(static_cast<const T*>(t.dy) + start, first + v * kThreads), dys);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float xhat = xhat_of(xs[i], s);
        add_terms(gamma[v][i] * dys[i], xhat, ab);
        add_terms(dys[i], xhat, column_sums[v][i]);
      }
    }
    ab = sum_lanes<32>(ab);
    if (threadIdx.x % 32 == 0) warp_sums[r][threadIdx.x / 32] = ab;
  }
  ptx::grid_dependency_launch();

#pragma unroll
  for (int v = 0; v < kVectorsPerThread; ++v) {
    if (v >= valid) break;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const int column = (first + v * kThreads) * kWidth + i;
      if (sums) {
        sums[static_cast<std::int64_t>(group) * p.n + column] = column_sums[v][i];
      } else {
        t.dbeta[column] = column_sums[v][i].x;
        t.dgamma[column] = column_sums[v][i].y;
      }
    }
  }
  __syncthreads();
  for (int r = threadIdx.x; r < rows; r += kThreads) {
    float2 sum = warp_sums[r][0];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) sum.x += warp_sums[r][warp].x, sum.y += warp_sums[r][warp].y;
    parts[static_cast<std::int64_t>(first_row + r) * columns.chunks + chunk] = sum;
  }
}

// A block a row: A / n and B / n.
__global__ void __launch_bounds__(kSumThreads)
    layernorm_backward_v03_means_kernel(const float2* parts, int chunks, int n, float2* means) {
  LADDER_SHARED(float2, warp_sums, [kSumThreads / 32]);
  const int row = blockIdx.x;
  ptx::grid_dependency_wait();
  float2 sum{0, 0};
  for (int chunk = threadIdx.x; chunk < chunks; chunk += kSumThreads) {
    const float2 part = parts[static_cast<std::int64_t>(row) * chunks + chunk];
    sum.x += part.x, sum.y += part.y;
  }
  ptx::grid_dependency_launch();
  sum = sum_row<kSumThreads>(sum, warp_sums);
  if (threadIdx.x == 0) means[row] = {sum.x / static_cast<float>(n), sum.y / static_cast<float>(n)};
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    layernorm_backward_v03_dx_kernel(Problem p, Backward::Tensors t, ColumnChunks columns, const float2* means) {
  constexpr int kVectorsPerThread = kChunkVectors<kWidth>;
  const int chunk = columns.chunks - 1 - static_cast<int>(blockIdx.x) % columns.chunks;
  const int first_row = static_cast<int>(blockIdx.x) / columns.chunks * columns.rows_per_group;
  const int last_row = min(first_row + columns.rows_per_group, p.m);
  const int first = chunk * kThreads * kVectorsPerThread + static_cast<int>(threadIdx.x);
  const int valid = ceil_div(p.n / kWidth - first, kThreads);
  ptx::grid_dependency_wait();

  float gamma[kVectorsPerThread][kWidth] = {};
#pragma unroll
  for (int v = 0; v < kVectorsPerThread; ++v) {
    if (v < valid) load_parameters(t.gamma, first + v * kThreads, gamma[v]);
  }
#pragma unroll 1
  for (int row = first_row; row < last_row; row += kRowsAtOnce) {
    Bits<T, kWidth> x[kRowsAtOnce][kVectorsPerThread];
    Bits<T, kWidth> dy[kRowsAtOnce][kVectorsPerThread];
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (row + r >= last_row) break;
      load_last<kWidth>(static_cast<const T*>(t.x), row + r, p.n, first, valid, x[r]);
      load_last<kWidth>(static_cast<const T*>(t.dy), row + r, p.n, first, valid, dy[r]);
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (row + r >= last_row) break;
      const RowStatistics s = statistics_of(t, row + r);
      const float2 row_means = means[row + r];
#pragma unroll
      for (int v = 0; v < kVectorsPerThread; ++v) {
        if (v >= valid) break;
        store_last<kWidth>(static_cast<T*>(t.dx), row + r, p.n, first + v * kThreads,
                           gradient<T, kWidth>(x[r][v], dy[r][v], gamma[v], s, row_means));
      }
    }
  }
  ptx::grid_dependency_launch();
}

// Calls f(T{}, std::integral_constant<int, kWidth>{}, ColumnChunks).
template <class F>
void with_chunks(const Problem& p, F&& f) {
  dispatch_width(p.dtype, p.in_vectors(), [&](auto element, auto width) {
    f(element, width, column_chunks<decltype(width)::value>(p, kThreads, kMaxRows));
  });
}

std::size_t means_bytes(const Problem& p) { return sizeof(float2) * static_cast<std::size_t>(p.m); }
std::size_t parts_bytes(const Problem& p, const ColumnChunks& columns) { return means_bytes(p) * columns.chunks; }

std::size_t workspace_bytes(const Problem& p) {
  std::size_t bytes = 0;
  with_chunks(p, [&](auto, auto, const ColumnChunks& columns) {
    bytes = means_bytes(p) + parts_bytes(p, columns);
    if (columns.groups > 1) bytes += sizeof(float2) * static_cast<std::size_t>(columns.groups) * p.n;
  });
  return bytes;
}

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  with_chunks(p, [&](auto element, auto width, const ColumnChunks& columns) {
    using T = decltype(element);
    constexpr int kWidth = decltype(width)::value;
    auto* const base = static_cast<char*>(workspace);
    auto* const means = reinterpret_cast<float2*>(base);                   // [m]
    auto* const parts = reinterpret_cast<float2*>(base + means_bytes(p));  // [m][chunks]
    auto* const sums = columns.groups > 1 ? reinterpret_cast<float2*>(base + means_bytes(p) + parts_bytes(p, columns))
                                          : nullptr;  // [groups][n]
    const LaunchConfig chunk_launch{.grid = columns.blocks(), .block = kThreads, .overlaps_previous = true};
    ladder::launch(layernorm_backward_v03_sums_kernel<T, kWidth>, chunk_launch, stream, p, t, columns, parts, sums);
    ladder::launch(layernorm_backward_v03_means_kernel,
                   {.grid = static_cast<unsigned>(p.m), .block = kSumThreads, .overlaps_previous = true}, stream, parts,
                   columns.chunks, p.n, means);
    ladder::launch(layernorm_backward_v03_dx_kernel<T, kWidth>, chunk_launch, stream, p, t, columns, means);
    if (sums) launch_parameter_sums(p, sums, columns.groups, t, stream);
  });
}

}  // namespace
}  // namespace ladder::layernorm

LADDER_VERSION(ladder::layernorm::Backward, {.launch = ladder::layernorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .workspace_bytes = ladder::layernorm::workspace_bytes})
