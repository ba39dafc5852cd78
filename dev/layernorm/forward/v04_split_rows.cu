// Idea:   long rows are cut into chunks of columns. One kernel leaves count, mean and squared deviations of every chunk of
//         every row in the workspace, one merges a row's in a fixed order, and one normalises: a block keeps gamma and beta
//         of its columns in registers and goes down the rows.
// Parent: v03.
// Why:    v03 has a block a row, and none for a row that a block cannot hold: sixteen rows leave most of the card idle. Here
//         every SM works, and gamma and beta, which are as long as two rows, are read once. The last kernel begins with the
//         columns that the first one ended with: they are still in the L2. Limiter: the rest of x comes twice from memory.
// Needs:  nothing; vectors are of sixteen bytes where a row is whole vectors, else single elements.

#include "dev/layernorm/column_chunks.h"
#include "dev/layernorm/rows.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::layernorm {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 8;  // of a thread of the first kernel: a chunk is 256 * 8 vectors
constexpr int kMergeThreads = 512;

// The block has a chunk of one row. Blocks go through all rows of a chunk, then to the next one.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    layernorm_forward_v04_moments_kernel(Problem p, Forward::Tensors t, Moments* parts, int chunks) {
  const int row = static_cast<int>(blockIdx.x) % p.m;
  const int chunk = static_cast<int>(blockIdx.x) / p.m;
  const int first = chunk * kThreads * kVectors + static_cast<int>(threadIdx.x);
  const int valid = min(kVectors, count_from(first, kThreads, p.n / kWidth));
  const auto* const x = static_cast<const T*>(t.x) + static_cast<std::int64_t>(row) * p.n;
  ptx::grid_dependency_wait();
  Bits<T, kWidth> x_vectors[kVectors] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (v < valid) x_vectors[v] = load_wide<kWidth>(x, first + v * kThreads);
  }
  const float pivot = to_float(x[0]);
  ptx::grid_dependency_launch();
  const Moments all = merge_block<kThreads>(moments_about<T, kWidth>(pivot, x_vectors, valid));
  if (threadIdx.x == 0) parts[static_cast<std::int64_t>(row) * chunks + chunk] = all;
}

// A block a row.
template <class T>
__global__ void __launch_bounds__(kMergeThreads)
    layernorm_forward_v04_merge_kernel(Problem p, Forward::Tensors t, const Moments* parts, int chunks,
                                       Normaliser* normalisers) {
  const int row = blockIdx.x;
  ptx::grid_dependency_wait();
  Moments local;
  for (int chunk = threadIdx.x; chunk < chunks; chunk += kMergeThreads) {
    local = merge(local, parts[static_cast<std::int64_t>(row) * chunks + chunk]);
  }
  const float pivot = to_float(static_cast<const T*>(t.x)[static_cast<std::int64_t>(row) * p.n]);
  ptx::grid_dependency_launch();
  const Normaliser s = normaliser_of(p, pivot, merge_block<kMergeThreads>(local));
  if (threadIdx.x > 0) return;
  normalisers[row] = s;
  store_statistics(t, row, s);
}

// The block has a chunk of columns and a group of rows.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    layernorm_forward_v04_normalise_kernel(Problem p, Forward::Tensors t, ColumnChunks columns,
                                           const Normaliser* normalisers) {
  constexpr int kVectorsPerThread = kChunkVectors<kWidth>;
  const int chunk = columns.chunks - 1 - static_cast<int>(blockIdx.x) % columns.chunks;
  const int first_row = static_cast<int>(blockIdx.x) / columns.chunks * columns.rows_per_group;
  const int last_row = min(first_row + columns.rows_per_group, p.m);
  const int first = chunk * kThreads * kVectorsPerThread + static_cast<int>(threadIdx.x);
  const int valid = ceil_div(p.n / kWidth - first, kThreads);
  ptx::grid_dependency_wait();

  float gamma[kVectorsPerThread][kWidth] = {};
  float beta[kVectorsPerThread][kWidth] = {};
#pragma unroll
  for (int v = 0; v < kVectorsPerThread; ++v) {
    if (v >= valid) break;
    load_parameters(t.gamma, first + v * kThreads, gamma[v]);
    load_parameters(t.beta, first + v * kThreads, beta[v]);
  }

  // Several rows at a time, so that enough loads are in flight. x is not needed again, nor y here.
#pragma unroll 1
  for (int row = first_row; row < last_row; row += kRowsAtOnce) {
    Bits<T, kWidth> x_vectors[kRowsAtOnce][kVectorsPerThread];
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (row + r >= last_row) break;
      load_last<kWidth>(static_cast<const T*>(t.x), row + r, p.n, first, valid, x_vectors[r]);
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (row + r >= last_row) break;
      const Normaliser s = normalisers[row + r];
#pragma unroll
      for (int v = 0; v < kVectorsPerThread; ++v) {
        if (v >= valid) break;
        store_last<kWidth>(static_cast<T*>(t.y), row + r, p.n, first + v * kThreads,
                           normalised<T, kWidth>(x_vectors[r][v], s, gamma[v], beta[v]));
      }
    }
  }
  ptx::grid_dependency_launch();
}

int moments_chunks(const Problem& p) { return ceil_div(p.vectors(), kThreads * kVectors); }

std::size_t normaliser_bytes(const Problem& p) { return sizeof(Normaliser) * static_cast<std::size_t>(p.m); }

std::size_t workspace_bytes(const Problem& p) {
  return normaliser_bytes(p) + sizeof(Moments) * static_cast<std::size_t>(p.m) * moments_chunks(p);
}

void launch(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  auto* const normalisers = static_cast<Normaliser*>(workspace);                                        // [m]
  auto* const parts = reinterpret_cast<Moments*>(static_cast<char*>(workspace) + normaliser_bytes(p));  // [m][chunks]
  const int chunks = moments_chunks(p);
  dispatch_width(p.dtype, p.in_vectors(), [&](auto element, auto width) {
    using T = decltype(element);
    constexpr int kWidth = decltype(width)::value;
    const ColumnChunks columns = column_chunks<kWidth>(p, kThreads, p.m);
    ladder::launch(layernorm_forward_v04_moments_kernel<T, kWidth>,
                   {.grid = static_cast<unsigned>(p.m) * chunks, .block = kThreads, .overlaps_previous = true}, stream,
                   p, t, parts, chunks);
    ladder::launch(layernorm_forward_v04_merge_kernel<T>,
                   {.grid = static_cast<unsigned>(p.m), .block = kMergeThreads, .overlaps_previous = true}, stream, p,
                   t, parts, chunks, normalisers);
    ladder::launch(layernorm_forward_v04_normalise_kernel<T, kWidth>,
                   {.grid = columns.blocks(), .block = kThreads, .overlaps_previous = true}, stream, p, t, columns,
                   normalisers);
  });
}

}  // namespace
}  // namespace ladder::layernorm

LADDER_VERSION(ladder::layernorm::Forward, {.launch = ladder::layernorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .workspace_bytes = ladder::layernorm::workspace_bytes})
