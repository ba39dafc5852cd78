// A version that does what the formula says, in blocks of 64 or 128 threads.
#include "core/device.h"
#include "tests/kernel/toy.h"

namespace ladder::toy {
namespace {

__global__ void toy_step_v01_kernel(int n, Step::Tensors t) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  t.y[i] = t.w[i] + static_cast<float>(t.label[i]);
  t.w[i] -= 0.5f * t.g[i];
}

KernelPlan<Step> block_plan(const Problem& p, const char* name, unsigned threads) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.n, static_cast<int>(threads)));
  return {.name = name, .bind = [=](const Step::Tensors& t, void*) {
            return bind_launch(toy_step_v01_kernel, {.grid = blocks, .block = threads}, p.n, t);
          }};
}

std::vector<KernelPlan<Step>> plans(const Problem& p) {
  std::vector<KernelPlan<Step>> plans = {block_plan(p, "64 threads", 64)};
  if (p.n > 64) return with_default<Step>({plans.front(), block_plan(p, "128 threads", 128)}, 1);
  return plans;
}

}  // namespace
}  // namespace ladder::toy

LADDER_VERSION(ladder::toy::Step, {.plans = ladder::toy::plans,
                                   .plan_names = {"64 threads", "128 threads"},
                                   .dtypes = {ladder::Dtype::f32},
                                   .private_workspace = true})
