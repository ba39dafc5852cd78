// Idea:   one block for each group of each image: one pass for the mean, one for the variance, one for the output.
// Parent: none.
// Why:    the formulas as they stand. Limiter: a group's elements are runs of c/g channels, so that a warp's load touches
//         up to 32 sectors for a few bytes of each, and it does so three times.
// Needs:  nothing.

#include "dev/groupnorm/activation.h"
#include "dev/groupnorm/parts_of_x.h"
#include "dev/groupnorm/statistics.h"

namespace ladder::groupnorm {
namespace {

constexpr int kThreads = 256;

// Returns the sum over the block to every thread. Halves are added to halves.
__device__ __forceinline__ float block_sum(float value) {
  LADDER_SHARED(float, sums, [kThreads]);
  __syncthreads();  // the last sum has been read
  sums[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  return sums[0];
}

template <class T, class Act, class P>
__global__ void __launch_bounds__(kThreads, 4) groupnorm_forward_v01_kernel(Problem p, Forward::Tensors t) {
  const int image = blockIdx.x / p.g;
  const int group = blockIdx.x % p.g;
  const int channels_per_group = p.c / p.g;
  const int m = p.h * p.w * channels_per_group;
  // The group's element i.
  const auto load_x = [&](int i) {
    return to_float(*column_of_x<T>(p, t, group * channels_per_group + i % channels_per_group)
                         .pixel_ptr(image * p.h * p.w + i / channels_per_group));
  };

  // Mean, about the first element (statistics.h says why).
  Normaliser normaliser{.pivot = load_x(0)};
  float sum = 0;
  for (int i = threadIdx.x; i < m; i += kThreads) sum += load_x(i) - normaliser.pivot;
  normaliser.delta = block_sum(sum) / static_cast<float>(m);

  // Variance, about the mean.
  float squares = 0;
  for (int i = threadIdx.x; i < m; i += kThreads) {
    const float centred = load_x(i) - normaliser.pivot - normaliser.delta;
    squares = fmaf(centred, centred, squares);
  }
  normaliser.rstd = rstd_of(p, block_sum(squares) / static_cast<float>(m));

  // Output.
  auto* const y = static_cast<T*>(t.y) + image * p.h * p.w * p.c + group * channels_per_group;
  for (int i = threadIdx.x; i < m; i += kThreads) {
    const Scaling channel = scaling_of<P>(normaliser, t, group * channels_per_group + i % channels_per_group);
    y[i / channels_per_group * p.c + i % channels_per_group] = from_float<T>(y_of<Act>(channel, load_x(i)));
  }
  if (threadIdx.x > 0) return;
  t.mean[blockIdx.x] = normaliser.pivot + normaliser.delta;
  t.rstd[blockIdx.x] = normaliser.rstd;
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  dispatch_all_types(p, [&](auto element, auto act, auto parameter) {
    ladder::launch(groupnorm_forward_v01_kernel<decltype(element), decltype(act), decltype(parameter)>,
                   {.grid = static_cast<unsigned>(p.n) * p.g, .block = kThreads}, stream, p, t);
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Forward, {.launch = ladder::groupnorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})
