// Writes the mean where rstd belongs, and the reverse.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Steps : Honest {
  template <class T>
  __device__ void store_statistics(const View<T>& v, int group, const Normaliser& s) const {
    v.mean[group] = s.rstd;
    v.rstd[group] = s.pivot + s.delta;
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
