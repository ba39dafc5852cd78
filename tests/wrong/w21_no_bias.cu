// Ignores the bias.
#include "tests/wrong/wrong.h"

namespace ladder::wrong {
namespace {

struct Steps : Honest {
  __device__ float first(const float*, int) const { return 0.0f; }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::wrong
