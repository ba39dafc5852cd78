// Overwrites dx and dgamma, but adds to dbeta.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {
namespace {

struct Steps : Honest {
  template <class T>
  __device__ Sums first(const View<T>& v, int c) const {
    return {.plain = v.dbeta[c], .xhat = 0.0f};
  }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::backward_wrong
