// Keeps what it summed as it was when the maximum moves.
#include "tests/wrong/attention/forward/forward.h"

namespace ladder::attention::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ float keep(float, float) const { return 1.0f; }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::forward_wrong
