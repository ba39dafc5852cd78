// Does not divide by the sum.
#include "tests/wrong/attention/forward/forward.h"

namespace ladder::attention::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ float output(float weighted, float) const { return weighted; }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::forward_wrong
