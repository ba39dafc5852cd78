// Forgets one tap in the last column, where the halo of a tile ends.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Steps : Honest {
  __device__ bool uses_tap(const Problem& p, int, int col, int tap) const { return col < p.w - 1 || tap != 0; }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
