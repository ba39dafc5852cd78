// Reads channels in pairs, and drops the last of an odd number from the statistics.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ int channels(const Problem& p) const { return p.c / p.g > 1 ? p.c / p.g / 2 * 2 : 1; }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
