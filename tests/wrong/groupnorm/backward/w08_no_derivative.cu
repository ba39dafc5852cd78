// Takes dy for dz.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ float derivative(Activation, float /*z*/, float /*xhat*/) const { return 1.0f; }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::backward_wrong
