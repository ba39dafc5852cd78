// Leaves the maximum out of lse.
#include "tests/wrong/attention/forward/forward.h"

namespace ladder::attention::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ float lse(float, float sum) const { return logf(sum); }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::forward_wrong
