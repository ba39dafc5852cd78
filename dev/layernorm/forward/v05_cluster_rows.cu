// Idea:   the blocks of a cluster hold a row in their registers. Each computes count, mean and squared deviations of
//         its own part, and the cluster merges them: one exchange through distributed shared memory.
// Parent: v03.
// Why:    v03 ends where a row is longer than a block's registers, and v04, for longer ones, reads x twice. Here rows
//         of up to eight blocks are read once. Few rows go over more blocks than they need, so that more SMs load.
//         Limiter: a cluster's blocks wait for each other, and none of them loads meanwhile.
// Needs:  rows of at most 131072 elements, or 32768 where a row is no whole vectors of sixteen bytes; sm_90's clusters.

#include "core/backend.h"
#include "dev/layernorm/row_sum.h"
#include "dev/layernorm/rows.h"
#include "dev/ptx/cluster.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/maximum.h"

namespace ladder::layernorm {
namespace {

constexpr int kThreads = 512;
constexpr int kMaxRanks = 8;  // blocks of a cluster: more are not portable

// A thread holds at most 32 elements, so that two blocks share an SM in fp32.
constexpr int vectors_per_thread(int width) { return width == 8 ? 4 : 8; }
template <int kWidth>
inline constexpr int kVectorsPerThread = vectors_per_thread(kWidth);  // for device code

// Statistics of a block's part of the row: 16 bytes, so that another block loads them at once.
struct alignas(16) Part {
  float pivot;  // a rough mean
  float delta;  // the mean less the pivot
  float m2;
  float count;
};

// Merge all ranks' parts, about the first rank's pivot. Every thread of the cluster gets the same result.
__device__ __forceinline__ Normaliser merge_cluster(const Problem& p, Part* block_part, int ranks) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Part part = lane < ranks ? ptx::ld_shared_cluster(ptx::mapa(block_part, lane)) : Part{};
  const float pivot = __shfl_sync(~0u, part.pivot, 0);
  const float mean = part.pivot - pivot + part.delta;
  Moments row;
#pragma unroll 1
  for (int rank = 0; rank < ranks; ++rank) {
    row = merge(row, {.count = __shfl_sync(~0u, part.count, rank),
                      .mean = __shfl_sync(~0u, mean, rank),
                      .m2 = __shfl_sync(~0u, part.m2, rank)});
  }
  return normaliser_of(p, pivot, row);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    layernorm_forward_v05_kernel(Problem p, Forward::Tensors t, int ranks, int vectors_per_block) {
  constexpr int kVectors = kVectorsPerThread<kWidth>;
  LADDER_SHARED(float2, parts, [2][kThreads / 32]);
  LADDER_SHARED(Part, block_part, [1]);
  const int row = static_cast<int>(blockIdx.x) / ranks;
  const int begin = static_cast<int>(blockIdx.x) % ranks * vectors_per_block;
  const int vectors = min(vectors_per_block, p.n / kWidth - begin);  // of the block's part, which may be empty
  const int first = static_cast<int>(threadIdx.x);
  const int valid = count_from(first, kThreads, vectors);
  const std::int64_t start = static_cast<std::int64_t>(row) * p.n + begin * kWidth;
  ptx::grid_dependency_wait();

  // Load the part and sum it. Vectors past its end are zeros.
  const T* const x = static_cast<const T*>(t.x) + start;
  Bits<T, kWidth> x_vectors[kVectors] = {};
  float2 sums{load_and_sum<kWidth>(x, first, kThreads, valid, x_vectors), 0};
  const float count = vectors > 0 ? static_cast<float>(vectors * kWidth) : 0.0f;
  const float inverse = vectors > 0 ? 1.0f / count : 0.0f;
  const float pivot = sum_row<kThreads>(sums, parts[0]).x * inverse;

  // Sum the distances from that mean and their squares.
  sums = sum_row<kThreads>(distances<T, kWidth>(pivot, x_vectors, valid), parts[1]);
  const float delta = sums.x * inverse;
  if (threadIdx.x == 0) {
    block_part[0] = {
        .pivot = pivot, .delta = delta, .m2 = ptx::maximum(fmaf(-sums.x, delta, sums.y), 0.0f), .count = count};
  }
  ptx::cluster_sync();
  const Normaliser s = merge_cluster(p, block_part, ranks);
  ptx::cluster_arrive_relaxed();  // the others' parts have been read

  // Output.
  T* const y = static_cast<T*>(t.y) + start;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (v >= valid) break;
    const int index = first + v * kThreads;
    float gamma[kWidth];
    float beta[kWidth];
    load_parameters(t.gamma, begin + index, gamma);
    load_parameters(t.beta, begin + index, beta);
    store_wide<kWidth>(y, index, normalised<T, kWidth>(x_vectors[v], s, gamma, beta));
  }
  ptx::grid_dependency_launch();
  if (threadIdx.x == 0 && begin == 0) store_statistics(t, row, s);
  ptx::cluster_wait();
}

int max_vectors_per_block(const Problem& p) {
  return kThreads * vectors_per_thread(p.in_vectors() ? 16 / static_cast<int>(size_of(p.dtype)) : 1);
}

// Returns the blocks of a row: the fewest that hold it, doubled while the grid has at most one block per SM and each
// block keeps at least two vectors a thread.
int ranks_of(const Problem& p) {
  int ranks = 1;
  while (ranks * max_vectors_per_block(p) < p.vectors()) ranks *= 2;
  while (2 * ranks <= kMaxRanks && 2 * ranks * p.m <= backend::device().num_sms &&
         p.vectors() >= 2 * ranks * 2 * kThreads) {
    ranks *= 2;
  }
  return ranks;
}

const char* supports(const Problem& p) {
  if (p.vectors() <= kMaxRanks * max_vectors_per_block(p)) return nullptr;
  return p.in_vectors() ? "a row must be at most 131072 elements"
                        : "a row that is no whole 16-byte vectors must be at most 32768 elements";
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  const int ranks = ranks_of(p);
  dispatch_width(p.dtype, p.in_vectors(), [&](auto element, auto width) {
    ladder::launch(layernorm_forward_v05_kernel<decltype(element), decltype(width)::value>,
                   {.grid = static_cast<unsigned>(p.m) * ranks,
                    .block = kThreads,
                    .cluster = static_cast<unsigned>(ranks),
                    .overlaps_previous = true},
                   stream, p, t, ranks, ceil_div(p.vectors(), ranks));
  });
}

}  // namespace
}  // namespace ladder::layernorm

LADDER_VERSION(ladder::layernorm::Forward, {.launch = ladder::layernorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::layernorm::supports,
                                            .min_arch = 90})
