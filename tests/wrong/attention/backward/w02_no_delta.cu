// Leaves delta out of ds, as if the softmax were not normalised.
#include "tests/wrong/attention/backward/backward.h"

namespace ladder::attention::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ float delta(float) const { return 0.0f; }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::backward_wrong
