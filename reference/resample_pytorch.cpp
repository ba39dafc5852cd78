// PyTorch's operators for resample, eager and compiled: reference/pytorch/resample.py.
#include "dev/resample/resample.h"
#include "reference/baseline_worker.h"

namespace ladder::resample {
namespace {

std::unique_ptr<Baseline> pytorch(const Case& c, const Pointers& at, Search search, const Measure&) {
  return make_worker_baseline(shared_worker(pytorch_program("resample")), c, at, search);
}

}  // namespace
}  // namespace ladder::resample

LADDER_BASELINE(ladder::resample::Pool, "PyTorch", 0, ladder::resample::pytorch)
LADDER_BASELINE(ladder::resample::PoolBackward, "PyTorch", 0, ladder::resample::pytorch)
LADDER_BASELINE(ladder::resample::Upsample, "PyTorch", 0, ladder::resample::pytorch)
LADDER_BASELINE(ladder::resample::UpsampleBackward, "PyTorch", 0, ladder::resample::pytorch)
