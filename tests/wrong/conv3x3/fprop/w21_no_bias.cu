// Ignores the bias.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Steps : Honest {
  __device__ float first(const float*, int) const { return 0.0f; }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
