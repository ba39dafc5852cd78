// Scales scores, dq and dk by 1 / sqrt(sqrt(d)).
#include "tests/wrong/attention/backward/backward.h"

namespace ladder::attention::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ float scale(int d) const { return 1.0f / sqrtf(sqrtf(static_cast<float>(d))); }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::backward_wrong
