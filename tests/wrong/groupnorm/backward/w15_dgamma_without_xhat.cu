// dbeta in dgamma's place.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {
namespace {

struct Steps : Honest {
  template <class T>
  __device__ void store(const View<T>& v, int c, const Sums& sums) const {
    v.dgamma[c] = sums.plain;
    v.dbeta[c] = sums.plain;
  }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::backward_wrong
