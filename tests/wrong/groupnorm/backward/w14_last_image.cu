// dgamma and dbeta without the last image.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ int images(const Problem& p) const { return p.n > 1 ? p.n - 1 : 1; }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::backward_wrong
