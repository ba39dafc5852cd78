// Adds up in whatever order blocks arrive: every answer is within the bound, and no two need be the same.
#include "tests/wrong/conv3x3/wgrad/wgrad.h"

namespace ladder::conv3x3::wgrad_wrong {
namespace {

struct Clear {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.store(index, 0.0f);
  }
};

// A block adds one pixel's products to kThreads outputs.
__global__ void add_kernel(View<float> v) {
  const int pixels = v.p.n * v.p.h * v.p.w;
  const int pixel = static_cast<int>(blockIdx.x % pixels);
  const long long index = blockIdx.x / pixels * static_cast<long long>(kThreads) + threadIdx.x;
  if (index >= v.count()) return;
  float* const to = v.is_bias(index) ? v.dbias + (index - v.num_weights()) : v.dw + index;
  atomicAdd(to, v.sum(index, pixel, pixel + 1));
}

void launch_atomics(const Problem& p, const Wgrad::Tensors& t, void*, Stream stream) {
  launch_cheat<Clear>(p, t, nullptr, stream);
  const auto blocks = wrong::num_blocks(num_sums(p)) * static_cast<unsigned>(p.pixels());
  launch(add_kernel, {.grid = blocks, .block = kThreads}, stream, View<float>(p, t, nullptr));
}

}  // namespace

LADDER_VERSION(Wgrad, {.launch = launch_atomics, .dtypes = {Dtype::f32}})

}  // namespace ladder::conv3x3::wgrad_wrong
