// Idea:   two kernels: a thread a convolution's element, straight from the formula; then a block a sample and group, which
//         finds mean and deviation of the group and makes the output.
// Parent: none.
// Why:    it is the definition, in the fewest lines, and the whole formula but the convolution is one kernel already.
//         Limiter: the convolution, as in fprop's v01; its output goes through memory, and a second kernel starts and ends.
// Needs:  nothing.

#include "dev/conv1d/block_output.h"
#include "dev/conv1d/one_output.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv1d {
namespace {

constexpr int kThreads = 64;  // few, so that the few outputs of a short sequence spread over all SMs
constexpr int kGroupThreads = 256;

// h = conv + bias, [n, out_l, k].
template <class T>
__global__ void conv1d_block_v01_conv_kernel(Problem p, Block::Tensors t, float* h) {
  ptx::grid_dependency_wait();
  const int index = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (index < p.n * p.out_l() * p.k) {
    const int k = index % p.k;
    const int o = index / p.k % p.out_l();
    h[index] =
        t.bias[k] + one_output(p, static_cast<const T*>(t.x), static_cast<const T*>(t.x_rest),
                               p.split > 0 ? p.split : p.c, static_cast<const T*>(t.w), index / p.k / p.out_l(), o, k);
  }
  ptx::grid_dependency_launch();
}

// The sum of every thread's value, in an order that depends on the threads' indices alone.
__device__ float sum_over_block(float value, float* values) {
  const int thread = static_cast<int>(threadIdx.x);
  values[thread] = value;
  for (int half = kGroupThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) values[thread] += values[thread + half];
  }
  __syncthreads();
  const float sum = values[0];
  __syncthreads();
  return sum;
}

template <class T>
__global__ void conv1d_block_v01_group_kernel(Problem p, Block::Tensors t, const float* h) {
  LADDER_SHARED(float, values, [kGroupThreads]);
  ptx::grid_dependency_wait();
  const int n = static_cast<int>(blockIdx.x) / p.g;
  const int width = p.group_channels();
  const int k0 = static_cast<int>(blockIdx.x) % p.g * width;
  const int count = width * p.out_l();
  const auto offset_of = [&](int i) { return (n * p.out_l() + i / width) * p.k + k0 + i % width; };

  float sum = 0;
  for (int i = threadIdx.x; i < count; i += kGroupThreads) sum += h[offset_of(i)];
  const float mean = sum_over_block(sum, values) / static_cast<float>(count);
  float squares = 0;
  for (int i = threadIdx.x; i < count; i += kGroupThreads) {
    const float deviation = h[offset_of(i)] - mean;
    squares += deviation * deviation;
  }
  const float rstd = 1.0f / sqrtf(sum_over_block(squares, values) / static_cast<float>(count) + kEpsilon);

  for (int i = threadIdx.x; i < count; i += kGroupThreads) {
    const ChannelMap map = ChannelMap::load(p, t, n, k0 + i % width);
    float y = map(p, (h[offset_of(i)] - mean) * rstd);
    if (t.residual) y += to_float(static_cast<const T*>(t.residual)[offset_of(i)]);
    static_cast<T*>(t.y)[offset_of(i)] = from_float<T>(y);
  }
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const Block::Tensors& t, void* workspace, Stream stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.n * p.out_l() * p.k, kThreads));
  const auto groups = static_cast<unsigned>(p.n * p.g);
  auto* const h = static_cast<float*>(workspace);
  with_storage_type(p.dtype, [&]<class T>(T) {
    ladder::launch(conv1d_block_v01_conv_kernel<T>, {.grid = blocks, .block = kThreads, .overlaps_previous = true},
                   stream, p, t, h);
    ladder::launch(conv1d_block_v01_group_kernel<T>,
                   {.grid = groups, .block = kGroupThreads, .overlaps_previous = true}, stream, p, t, h);
  });
}

}  // namespace
}  // namespace ladder::conv1d

LADDER_VERSION(ladder::conv1d::Block, {.launch = ladder::conv1d::launch,
                                       .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                       .workspace_bytes = [](const ladder::conv1d::Problem& p) {
                                         return std::size_t{4} * p.n * p.out_l() * p.k;
                                       }})
