// Zeros behind the right statistics: what a mean of all outputs would be.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    write(v, Honest{}, index, statistics_of(v, Honest{}, v.group(index)));
    v.y[index] = from_float<T>(0.0f);
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
