// PyTorch's group_norm with its activation, and their gradients, eager and compiled: reference/pytorch/groupnorm.py.
#include "dev/groupnorm/groupnorm.h"
#include "reference/baseline_worker.h"

namespace ladder::groupnorm {
namespace {

std::unique_ptr<Baseline> pytorch(const Case& c, void* const* pointers, Search search, const Measure&) {
  return make_worker_baseline(shared_worker(pytorch_program("groupnorm")), c, pointers, search);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_BASELINE(ladder::groupnorm::Forward, ladder::Library::pytorch, ladder::groupnorm::pytorch)
LADDER_BASELINE(ladder::groupnorm::Backward, ladder::Library::pytorch, ladder::groupnorm::pytorch)
