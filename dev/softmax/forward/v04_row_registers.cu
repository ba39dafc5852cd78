// Idea:   the row stays in the registers it was loaded into: of some lanes of a warp where it is short, else of a block.
// Parent: v03.
// Why:    x is read once. A thread issues all of its loads, up to 128 bytes, at once; a warp takes its max and sum by shuffles,
//         and a block's warps meet at one barrier, since each scales exponentials below its own max at the end. Rows of a few
//         elements share a warp. Limiter: memory; of long rows that one block of 1024 threads an SM loads, computes
//         and stores in turn.
// Needs:  rows of at most 32768 elements; single elements where rows are no whole vectors of sixteen bytes.

#include "dev/ptx/grid_dependency.h"
#include "dev/softmax/row_part.h"
#include "dev/softmax/row_plan.h"

namespace ladder::softmax {
namespace {

// kBlock: a block has one row, else one for every `row_threads` threads.
template <class T, int kWidth, int kValues, bool kBlock>
__global__ void __launch_bounds__(kBlock ? kMaxThreads : kBlockThreads)
    softmax_forward_v04_kernel(Problem p, int row_threads, const T* x, T* y) {
  LADDER_SHARED(MaxSum, warp_parts, [kMaxWarps]);
  const int thread = static_cast<int>(threadIdx.x);
  const int row = kBlock ? blockIdx.x : (blockIdx.x * kBlockThreads + thread) / row_threads;
  const int first = kBlock ? first_vector<kWidth, kValues>(thread / 32) : thread % row_threads;
  const int vectors = row < p.m ? p.n / kWidth : 0;
  x += std::int64_t{row} * p.n;
  y += std::int64_t{row} * p.n;

  float values[kValues];
  ptx::grid_dependency_wait();
  load_part<T, kWidth>(x, first, vectors, -INFINITY, values);
  ptx::grid_dependency_launch();

  const MaxSum part = take_exponentials(values, kBlock ? 32 : row_threads);
  MaxSum row_max_sum = part;
  if constexpr (kBlock) {
    if (thread % 32 == 0) warp_parts[thread / 32] = part;
    __syncthreads();
    row_max_sum = merge_parts(warp_parts, row_threads / 32);
  }
  multiply(values, factor_of(part, row_max_sum));
  store_part<T, kWidth>(y, first, vectors, values);
}

const char* supports(const Problem& p) {
  return p.n <= kMaxThreads * kMaxValues ? nullptr : "a block's registers hold 32768 elements of a row";
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  const bool block = p.n > kMaxElementsOfLanes;
  const RowPlan plan = block ? plan_blocks(p.n, 1) : plan_lanes(p);
  const LaunchConfig config{
      .grid = block ? static_cast<unsigned>(p.m) : stream_blocks(std::int64_t{p.m} * plan.threads, kBlockThreads, 1),
      .block = static_cast<unsigned>(block ? plan.threads : kBlockThreads),
      .overlaps_previous = true};
  dispatch_values(p, plan.values, [&](auto element, auto width, auto values) {
    using T = decltype(element);
    const auto run = [&](auto kernel) {
      ladder::launch(kernel, config, stream, p, plan.threads, static_cast<const T*>(t.x), static_cast<T*>(t.y));
    };
    if (!block) return run(softmax_forward_v04_kernel<T, width, values, false>);
    run(softmax_forward_v04_kernel<T, width, kMaxValues, true>);
  });
}

}  // namespace
}  // namespace ladder::softmax

LADDER_VERSION(ladder::softmax::Forward, {.launch = ladder::softmax::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                          .supports = ladder::softmax::supports,
                                          .needs = "rows of at most 32768 elements"})
