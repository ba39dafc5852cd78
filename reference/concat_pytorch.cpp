// PyTorch's operators for concat, eager and compiled: reference/pytorch/concat.py.
#include "dev/concat/concat.h"
#include "reference/baseline_worker.h"

namespace ladder::concat {
namespace {

std::unique_ptr<Baseline> pytorch(const Case& c, const Pointers& at, Search search, const Measure&) {
  return make_worker_baseline(shared_worker(pytorch_program("concat")), c, at, search);
}

}  // namespace
}  // namespace ladder::concat

LADDER_BASELINE(ladder::concat::Join, "PyTorch", 0, ladder::concat::pytorch)
