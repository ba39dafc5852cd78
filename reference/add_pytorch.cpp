// PyTorch's operators for add, eager and compiled: reference/pytorch/add.py.
#include "dev/add/add.h"
#include "reference/baseline_worker.h"

namespace ladder::add {
namespace {

std::unique_ptr<Baseline> pytorch(const Case& c, const Pointers& at, Search search, const Measure&) {
  return make_worker_baseline(shared_worker(pytorch_program("add")), c, at, search);
}

}  // namespace
}  // namespace ladder::add

LADDER_BASELINE(ladder::add::Residual, "PyTorch", 0, ladder::add::pytorch)
LADDER_BASELINE(ladder::add::Embedding, "PyTorch", 0, ladder::add::pytorch)
LADDER_BASELINE(ladder::add::EmbeddingBackward, "PyTorch", 0, ladder::add::pytorch)
