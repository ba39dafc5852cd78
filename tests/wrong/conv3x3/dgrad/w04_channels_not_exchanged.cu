// Reads the weights as [c, 3, 3, k], which is what a convolution of dy would want.
#include "tests/wrong/conv3x3/dgrad/dgrad.h"

namespace ladder::conv3x3::dgrad_wrong {
namespace {

struct Steps : Honest {
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return (static_cast<long long>(c) * 9 + tap) * p.k + k;
  }
};

}  // namespace

LADDER_VERSION(Dgrad, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::dgrad_wrong
