// The kernels that end dgamma and dbeta: versions of the backward pass launch one of them after their own.
#include "dev/groupnorm/parameter_gradients.h"

#include "dev/groupnorm/dz/flagged_rows.h"
#include "dev/groupnorm/parameter_sums.h"
#include "dev/ptx/clock.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::groupnorm {
namespace {

template <class P, bool kOverlaps>
__global__ void __launch_bounds__(kParameterThreads)
    groupnorm_backward_parameters_kernel(const float2* sums, int rows, int c, float* dgamma, float* dbeta) {
  if constexpr (kOverlaps) {
    ptx::grid_dependency_wait();
    ptx::grid_dependency_launch();
  }
  sum_parameters<P>(sums, rows, c, blockIdx.x, dgamma, dbeta);
}

// Adds up rows as they come, and clears their ready flags. The grid starts when every block of the kernel before it is at work
// on its last slab, so all rows will come. The next grid starts before them: its blocks set up their barriers and wait while
// dx is being written.
template <class P>
__global__ void __launch_bounds__(kParameterThreads)
    groupnorm_backward_flagged_parameters_kernel(FlaggedRow* all, int rows, int c, float* dgamma, float* dbeta) {
  constexpr int kAtOnce = 4;
  constexpr unsigned kClocks = 200;  // between two looks, which keep the L2 from its work
  ptx::grid_dependency_flags();
  ptx::grid_dependency_launch();
  const int channel = parameter_channel(blockIdx.x);
  float2 sum{0, 0};
  if (channel < c) {
#pragma unroll 1
    for (int first = parameter_group(); first < rows; first += kAtOnce * kParameterGroups) {
      FlaggedRow* const from = all + static_cast<long long>(first) * c + channel;
      const auto row = [&](int i) -> FlaggedRow& { return from[static_cast<long long>(i) * kParameterGroups * c]; };
      const int count = min(kAtOnce, ceil_div(rows - first, kParameterGroups));
      Flagged dbeta_words[kAtOnce];
      Flagged dgamma_words[kAtOnce];
      for (;;) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          dbeta_words[i] = i < count ? row(i).dbeta : flagged(0);
          dgamma_words[i] = i < count ? row(i).dgamma : flagged(0);
        }
        bool ready = true;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) ready = ready && is_ready(dbeta_words[i]) && is_ready(dgamma_words[i]);
        if (ready) break;
        ptx::wait_clocks(kClocks);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        sum.x += value_of(dbeta_words[i]), sum.y += value_of(dgamma_words[i]);
        if (i >= count) continue;
        row(i).dbeta = 0;
        row(i).dgamma = 0;
      }
    }
  }
  store_parameters<P>(sum, c, blockIdx.x, dgamma, dbeta);
  ptx::grid_dependency_wait();  // the grid after this one needs dx
}

}  // namespace

void launch_parameters(const Problem& p, const float2* sums, int rows, const Backward::Tensors& t, Stream stream,
                       bool overlaps) {
  if (!p.affine) return;
  with_storage_type(p.parameter_dtype(), [&](auto parameter) {
    using P = decltype(parameter);
    ladder::launch(overlaps ? groupnorm_backward_parameters_kernel<P, true>  //
                            : groupnorm_backward_parameters_kernel<P, false>,
                   {.grid = static_cast<unsigned>(parameter_blocks(p.c)),
                    .block = kParameterThreads,
                    .overlaps_previous = overlaps},
                   stream, sums, rows, p.c, t.dgamma, t.dbeta);
  });
}

BoundLaunch with_parameters(BoundLaunch first, const Problem& p, FlaggedRow* rows, const Backward::Tensors& t) {
  if (!p.affine) return first;
  const LaunchConfig config{
      .grid = static_cast<unsigned>(parameter_blocks(p.c)), .block = kParameterThreads, .overlaps_previous = true};
  return with_storage_type(p.parameter_dtype(), [&](auto parameter) {
    return in_order({std::move(first), bind_launch(groupnorm_backward_flagged_parameters_kernel<decltype(parameter)>,
                                                   config, rows, p.n, p.c, t.dgamma, t.dbeta)});
  });
}

}  // namespace ladder::groupnorm
