// Overwrites dx and dbeta, but adds to dgamma, as frameworks do over several batches.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {
namespace {

struct Steps : Honest {
  template <class T>
  __device__ Sums first(const View<T>& v, int c) const {
    return {.plain = 0.0f, .xhat = v.dgamma[c]};
  }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::backward_wrong
