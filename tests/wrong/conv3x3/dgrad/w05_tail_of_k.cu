// Sums over whole groups of eight output channels, and drops the rest.
#include "tests/wrong/conv3x3/dgrad/dgrad.h"

namespace ladder::conv3x3::dgrad_wrong {
namespace {

struct Steps : Honest {
  __device__ int channels(const Problem& p) const { return p.k / 8 * 8; }
};

}  // namespace

LADDER_VERSION(Dgrad, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::dgrad_wrong
