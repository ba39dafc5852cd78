// PyTorch's group_norm with its activation, and their gradients, eager and compiled: reference/pytorch/groupnorm.py.
#include "dev/groupnorm/groupnorm.h"
#include "reference/baseline_worker.h"

namespace ladder::groupnorm {
namespace {

std::unique_ptr<Baseline> pytorch(const Case& c, const Pointers& at, Search search, const Measure&) {
  return make_worker_baseline(shared_worker(pytorch_program("groupnorm")), c, at, search);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_BASELINE(ladder::groupnorm::Forward, "PyTorch", 0, ladder::groupnorm::pytorch)
LADDER_BASELINE(ladder::groupnorm::Backward, "PyTorch", 0, ladder::groupnorm::pytorch)
