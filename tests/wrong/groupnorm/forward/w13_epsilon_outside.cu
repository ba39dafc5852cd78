// Adds epsilon to the deviation instead of the variance.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ float rstd(float variance) const { return 1.0f / (sqrtf(variance) + kEpsilon); }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
