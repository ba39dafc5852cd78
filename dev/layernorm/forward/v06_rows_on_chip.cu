// Idea:   the whole card holds two rows at a time: each block has a slice of their columns, the first row's in
//         registers, the second's in shared memory, where most of the next first row already arrives. A barrier of the
//         whole grid stands between the statistics and y.
// Parent: v04.
// Why:    v04 reads x twice from memory. Here x is read once, and gamma and beta, which stay in the L2, once for two
//         rows. The loads go on while blocks wait for each other. Limiter: memory; the barrier, where too few loads are
//         in flight.
// Needs:  fp32; sm_90's 227 KB of shared memory; rows of whole sixteen-byte vectors, of at most 8,192 for each SM, and
//         at most 64 of them; all blocks resident (a cooperative launch).

#include "core/graph.h"
#include "dev/layernorm/column_chunks.h"
#include "dev/layernorm/rows.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/grid_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/opaque.h"

namespace ladder::layernorm {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kPair = 2;  // rows at a time
constexpr int kWidth = kVector<float>;
constexpr std::size_t kCounterBytes = 256;
constexpr int kMaxRows = 64;  // short rows are many: each pair of them waits for the whole card

// Vectors per thread of a pair's first row that arrive in shared memory, a pair of rows ahead. The others have no room
// there and are loaded straight into registers, as soon as the previous first row has left them.
template <int kVectors>
inline constexpr int kAhead = kVectors * 3 / 4;
template <int kVectors>
inline constexpr std::size_t kSmemBytes = (kVectors + kAhead<kVectors>)*kThreads * sizeof(uint4);
static_assert(kSmemBytes<16> <= 227 * 1024 - 2048, "beside the static shared memory");

// Merge the moments `local` of all threads of the block, of two rows. Lane 0 of warp r gets row r's.
__device__ __forceinline__ Moments merge_pair(const Moments (&local)[kPair], Moments (&of_warp)[kPair][kWarps]) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int r = 0; r < kPair; ++r) {
    const Moments merged = merge_warp(local[r]);
    if (lane == 0) of_warp[r][warp] = merged;
  }
  __syncthreads();
  return merge_warp(warp < kPair && lane < kWarps ? of_warp[warp][lane] : Moments{});
}

// A thread's vectors of a row are first, first + step, ..., at most kVectors. Each has its own slot in shared memory,
// and each copy to a slot is one cp.async group.
template <int kVectors>
__global__ void __launch_bounds__(kThreads, 1)
    layernorm_forward_v06_kernel(Problem p, Forward::Tensors t, unsigned* counter, Moments* parts) {
  constexpr int kAheadHere = kAhead<kVectors>;
  LADDER_SHARED(Moments, of_warp, [kPair][kWarps]);
  LADDER_SHARED(Normaliser, normalisers, [kPair]);
  LADDER_DYN_SMEM(smem);
  auto* const second = reinterpret_cast<uint4*>(smem) + threadIdx.x;  // vector v of the second row at [v * kThreads]
  auto* const ahead = second + kVectors * kThreads;  // vector v of the next first row at [v * kThreads]
  const auto* const x = static_cast<const float*>(t.x);
  auto* const y = static_cast<float*>(t.y);
  const int step = static_cast<int>(gridDim.x) * kThreads;
  const int first = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int valid = count_from(first, step, p.n / kWidth);
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  ptx::GridBarrier barrier(counter);

  // NOTE: opaque, or all vectors' addresses would take registers.
  const auto index_of = [&](int v) { return first + ptx::opaque(v) * step; };
  const auto vector_of = [&](int row, int v) {
    return reinterpret_cast<const uint4*>(x + static_cast<std::int64_t>(row) * p.n) + index_of(v);
  };
  const auto copy = [&](uint4* to, int row, int v) {
    if (row < p.m && v < valid) ptx::cp_async<16>(to + v * kThreads, vector_of(row, v), true);
    ptx::cp_async_commit();
  };

  ptx::grid_dependency_wait();
  uint4 first_row[kVectors] = {};
#pragma unroll
  for (int v = 0; v < kAheadHere; ++v) copy(ahead, 0, v);
#pragma unroll
  for (int v = kVectors - 1; v >= 0; --v) {
    if (v >= kAheadHere && v < valid) first_row[v] = __ldcs(vector_of(0, v));
    copy(second, 1, v);
  }

#pragma unroll 1
  for (int row = 0; row < p.m; row += kPair) {
    const int num_rows = min(kPair, p.m - row);
    float pivot[kPair];
#pragma unroll
    for (int r = 0; r < kPair; ++r) {
      pivot[r] = x[static_cast<std::int64_t>(min(row + r, p.m - 1)) * p.n];
    }

    // Move the first row from shared memory to registers; the next first row takes its place.
#pragma unroll
    for (int v = 0; v < kAheadHere; ++v) {
      ptx::cp_async_wait<kAheadHere + kVectors - 1>();
      if (v < valid) first_row[v] = ahead[v * kThreads];
      copy(ahead, row + kPair, v);
    }
    Moments local[kPair];
    local[0] = moments_about<float, kWidth>(pivot[0], first_row, valid);

    // The second row stays in shared memory until it is normalised.
    ptx::cp_async_wait<kAheadHere>();
    const auto second_row = [&](int v) { return second[ptx::opaque(v) * kThreads]; };
    local[1] = moments_about<float, kWidth, kVectors>(pivot[1], second_row, num_rows == kPair ? valid : 0);

    const Moments block_moments = merge_pair(local, of_warp);
    if (lane == 0 && warp < num_rows)
      parts[static_cast<std::int64_t>(row + warp) * gridDim.x + blockIdx.x] = block_moments;
    barrier.sync();

    // Every block merges all blocks' parts, in the same order.
    if (warp < num_rows) {
      Moments row_moments;
      for (unsigned b = lane; b < gridDim.x; b += 32) {
        row_moments = merge(row_moments, parts[static_cast<std::int64_t>(row + warp) * gridDim.x + b]);
      }
      row_moments = merge_warp(row_moments);
      if (lane == 0) {
        const Normaliser s = normaliser_of(p, warp == 0 ? pivot[0] : pivot[1], row_moments);
        normalisers[warp] = s;
        if (blockIdx.x == 0) store_statistics(t, row + warp, s);
      }
    }
    __syncthreads();

    // Normalise the last vectors first: the next first row has no slots in shared memory for them and waits for their
    // registers.
    const Normaliser s[kPair] = {normalisers[0], normalisers[1]};
#pragma unroll
    for (int v = kVectors - 1; v >= 0; --v) {
      if (v < valid) {
        const int index = index_of(v);
        float gamma[kWidth];
        float beta[kWidth];
        load_parameters(t.gamma, index, gamma);
        load_parameters(t.beta, index, beta);
        store_last<kWidth>(y, row, p.n, index, normalised<float, kWidth>(first_row[v], s[0], gamma, beta));
        if (num_rows == kPair) {
          store_last<kWidth>(y, row + 1, p.n, index,
                             normalised<float, kWidth>(second[v * kThreads], s[1], gamma, beta));
        }
        if (v >= kAheadHere && row + kPair < p.m) first_row[v] = __ldcs(vector_of(row + kPair, v));
      }
      copy(second, row + kPair + 1, v);
    }
  }
  ptx::grid_dependency_launch();
  ptx::cp_async_wait<0>();
}

int blocks_of(const Problem& p) { return std::min(backend::device().num_sms, ceil_div(p.vectors(), kThreads)); }

// Returns true if a block's slice is at most `vectors` vectors a thread.
bool fits(const Problem& p, int vectors) { return p.vectors() <= std::int64_t{blocks_of(p)} * kThreads * vectors; }

template <int kVectors>
KernelPlan<Forward> plan(const Problem& p, const char* name) {
  const std::size_t bytes = kCounterBytes + sizeof(Moments) * static_cast<std::size_t>(p.m) * blocks_of(p);
  const auto bind = [p](const Forward::Tensors& t, void* workspace) {
    auto* const counter = static_cast<unsigned*>(workspace);
    auto* const parts = reinterpret_cast<Moments*>(static_cast<char*>(workspace) + kCounterBytes);  // [m][blocks]
    return in_order({[counter](Stream stream) { set_bytes_async(counter, 0, sizeof(unsigned), stream); },
                     bind_launch(layernorm_forward_v06_kernel<kVectors>,
                                 {.grid = static_cast<unsigned>(blocks_of(p)),
                                  .block = kThreads,
                                  .dynamic_smem = kSmemBytes<kVectors>,
                                  .overlaps_previous = true,
                                  .cooperative = true},
                                 p, t, counter, parts)});
  };
  return {.name = name, .workspace_bytes = bytes, .bind = bind};
}

std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  std::vector<KernelPlan<Forward>> plans;
  if (fits(p, 4)) plans.push_back(plan<4>(p, "4 vectors a thread"));
  plans.push_back(plan<16>(p, "16 vectors a thread"));
  return plans;
}

const char* supports(const Problem& p) {
  if (p.m > kMaxRows)
    return "it is for few long rows: at most 64, as every two of them cost a barrier of the whole card";
  if (!p.in_vectors()) return "rows must be whole vectors of sixteen bytes";
  return fits(p, 16) ? nullptr : "a row must fit the registers of all SMs";
}

}  // namespace
}  // namespace ladder::layernorm

LADDER_VERSION(ladder::layernorm::Forward, {.plans = ladder::layernorm::plans,
                                            .plan_names = {"4 vectors a thread", "16 vectors a thread"},
                                            .dtypes = {ladder::Dtype::f32},
                                            .supports = ladder::layernorm::supports,
                                            .min_arch = 90})
