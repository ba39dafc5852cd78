// Convolves where the layer correlates: taps in reverse order.
#include "tests/wrong/wrong.h"

namespace ladder::wrong {
namespace {

struct Steps : Honest {
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return (static_cast<long long>(k) * 9 + (8 - tap)) * p.c + c;
  }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::wrong
