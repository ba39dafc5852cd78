// PyTorch's scaled_dot_product_attention and its gradients, each of its kernels: reference/pytorch/attention.py.
#include "dev/attention/attention.h"
#include "reference/baseline_worker.h"

namespace ladder::attention {
namespace {

std::unique_ptr<Baseline> pytorch(const Case& c, const Pointers& at, Search search, const Measure&) {
  return make_worker_baseline(shared_worker(pytorch_program("attention")), c, at, search);
}

}  // namespace
}  // namespace ladder::attention

LADDER_BASELINE(ladder::attention::Forward, "PyTorch", 0, ladder::attention::pytorch)
LADDER_BASELINE(ladder::attention::Backward, "PyTorch", 0, ladder::attention::pytorch)
