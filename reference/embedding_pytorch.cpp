// PyTorch's operators for embedding, eager and compiled: reference/pytorch/embedding.py.
#include "dev/embedding/embedding.h"
#include "reference/baseline_worker.h"

namespace ladder::embedding {
namespace {

std::unique_ptr<Baseline> pytorch(const Case& c, const Pointers& at, Search search, const Measure&) {
  return make_worker_baseline(shared_worker(pytorch_program("embedding")), c, at, search);
}

}  // namespace
}  // namespace ladder::embedding

LADDER_BASELINE(ladder::embedding::Timestep, "PyTorch", 0, ladder::embedding::pytorch)
