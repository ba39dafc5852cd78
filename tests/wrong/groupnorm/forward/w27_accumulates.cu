// Adds to y instead of overwriting it.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const float before = to_float(v.y[index]);
    const Normaliser s = statistics_of(v, Honest{}, v.group(index));
    write(v, Honest{}, index, s);
    v.y[index] = from_float<T>(before + output(v, Honest{}, index, s));
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
