// A version that forgets to write w.
#include "core/device.h"
#include "tests/kernel/toy.h"

namespace ladder::toy {
namespace {

__global__ void toy_step_v02_kernel(int n, Step::Tensors t) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) t.y[i] = t.w[i] + static_cast<float>(t.label[i]);
}

void launch(const Problem& p, const Step::Tensors& t, void*, Stream stream) {
  ladder::launch(toy_step_v02_kernel, {.grid = static_cast<unsigned>(ceil_div(p.n, 64)), .block = 64}, stream, p.n, t);
}

}  // namespace
}  // namespace ladder::toy

LADDER_VERSION(ladder::toy::Step, {.launch = ladder::toy::launch, .dtypes = {ladder::Dtype::f32}})
