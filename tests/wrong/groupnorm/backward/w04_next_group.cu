// A and B of the neighbouring group.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ int group(const Problem& p, int group) const { return (group + 1) % (p.n * p.g); }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::backward_wrong
