// Rounds the mean to fp32 before it is subtracted, which a mean of 10^4 deviations shows.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ float centred(float x, const Normaliser& s) const { return x - (s.pivot + s.delta); }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
