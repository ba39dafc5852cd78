// Scales q by 1 / sqrt(sqrt(d)), and forgets k.
#include "tests/wrong/attention/forward/forward.h"

namespace ladder::attention::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ float scale(int d) const { return 1.0f / sqrtf(sqrtf(static_cast<float>(d))); }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::forward_wrong
