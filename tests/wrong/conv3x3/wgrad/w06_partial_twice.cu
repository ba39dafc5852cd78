// Adds the last partial sum twice: a loop with `<=`, and an index that is held within its range.
#include "tests/wrong/conv3x3/wgrad/wgrad.h"

namespace ladder::conv3x3::wgrad_wrong {
namespace {

struct Steps : Honest {
  __device__ int num_shares() const { return kShares + 1; }
};

}  // namespace

LADDER_VERSION(Wgrad, {.launch = launch_both<Steps>, .dtypes = stored_dtypes(), .workspace_bytes = partial_bytes})

}  // namespace ladder::conv3x3::wgrad_wrong
