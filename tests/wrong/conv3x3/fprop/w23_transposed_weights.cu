// Reads the weights as [c, 3, 3, k].
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Steps : Honest {
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return (static_cast<long long>(c) * 9 + tap) * p.k + k;
  }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
