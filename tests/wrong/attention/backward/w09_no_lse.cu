// Does not normalise p.
#include "tests/wrong/attention/backward/backward.h"

namespace ladder::attention::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ float probability(float score, float) const { return expf(score); }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::backward_wrong
