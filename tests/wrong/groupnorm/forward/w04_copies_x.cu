// Leaves x as it is, as if it were normalised already.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    write(v, Honest{}, index, statistics_of(v, Honest{}, v.group(index)));
    v.y[index] = v.x[index];
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
