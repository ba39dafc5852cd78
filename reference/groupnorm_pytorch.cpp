// PyTorch's group_norm with its activation, and their gradients, eager and compiled: reference/pytorch/groupnorm.py.
#include "dev/groupnorm/groupnorm.h"
#include "reference/opponent_worker.h"

namespace ladder::groupnorm {
namespace {

std::unique_ptr<Opponent> pytorch(const Case& c, void* const* pointers, Search search, const Measure&) {
  return make_worker_opponent(shared_worker(pytorch_program("groupnorm")), c, pointers, search);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_OPPONENT(ladder::groupnorm::Forward, ladder::Library::pytorch, ladder::groupnorm::pytorch)
LADDER_OPPONENT(ladder::groupnorm::Backward, ladder::Library::pytorch, ladder::groupnorm::pytorch)
