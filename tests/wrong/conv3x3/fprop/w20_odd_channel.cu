// Reads channels in pairs, and drops the last of an odd number.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Steps : Honest {
  __device__ int channels(const Problem& p) const { return p.c / 2 * 2; }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
