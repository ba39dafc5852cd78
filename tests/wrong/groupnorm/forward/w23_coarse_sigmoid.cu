// A sigmoid of eleven bits, as tanh.approx makes it: enough for 16-bit outputs, not for fp32.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ float activated(Activation activation, float z) const {
    const float exact = value_of(activation, z);
    return activation == Activation::silu ? exact * (1.0f + 0x1p-11f) : exact;
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
