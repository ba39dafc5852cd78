// Convolves dy with the taps in the order of the forward pass.
#include "tests/wrong/conv3x3/dgrad/dgrad.h"

namespace ladder::conv3x3::dgrad_wrong {
namespace {

struct Steps : Honest {
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return Honest::weight(p, k, 8 - tap, c);
  }
};

}  // namespace

LADDER_VERSION(Dgrad, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::dgrad_wrong
