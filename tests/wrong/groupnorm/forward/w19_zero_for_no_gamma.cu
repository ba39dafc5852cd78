// Takes a gamma that is not given for zero.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ float gamma(const float* gamma, int c) const { return gamma ? gamma[c] : 0.0f; }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
