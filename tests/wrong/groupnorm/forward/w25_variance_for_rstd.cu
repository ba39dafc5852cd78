// Hands the variance to the backward pass instead of rstd.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Steps : Honest {
  template <class T>
  __device__ void store_statistics(const View<T>& v, int group, const Normaliser& s) const {
    v.mean[group] = s.pivot + s.delta;
    v.rstd[group] = 1.0f / (s.rstd * s.rstd) - kEpsilon;
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
