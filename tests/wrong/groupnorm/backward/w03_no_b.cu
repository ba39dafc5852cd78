// Leaves B out of dx, as if the deviation did not depend on x.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ Sums corrected(Sums ab) const { return {.plain = ab.plain, .xhat = 0.0f}; }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::backward_wrong
