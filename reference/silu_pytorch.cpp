// PyTorch's operators for silu, eager and compiled: reference/pytorch/silu.py.
#include "dev/silu/silu.h"
#include "reference/baseline_worker.h"

namespace ladder::silu {
namespace {

std::unique_ptr<Baseline> pytorch(const Case& c, const Pointers& at, Search search, const Measure&) {
  return make_worker_baseline(shared_worker(pytorch_program("silu")), c, at, search);
}

}  // namespace
}  // namespace ladder::silu

LADDER_BASELINE(ladder::silu::Forward, "PyTorch", 0, ladder::silu::pytorch)
LADDER_BASELINE(ladder::silu::Backward, "PyTorch", 0, ladder::silu::pytorch)
