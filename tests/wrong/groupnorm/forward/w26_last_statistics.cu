// Writes the statistics of every group but the last.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Steps : Honest {
  template <class T>
  __device__ void store_statistics(const View<T>& v, int group, const Normaliser& s) const {
    if (group + 1 < v.num_groups()) Honest::store_statistics(v, group, s);
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
