// dx with respect to xhat.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ float scale(float /*rstd*/) const { return 1.0f; }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::backward_wrong
