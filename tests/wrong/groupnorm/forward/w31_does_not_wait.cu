// A group's first thread makes the statistics, and all others read them, of whatever block, without waiting: right
// where blocks and threads run in order.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const int group = v.group(index);
    float* const shared = v.workspace + 3 * group;
    if (v.is_first(index)) {
      const Normaliser s = statistics_of(v, Honest{}, group);
      shared[0] = s.pivot;
      shared[1] = s.delta;
      shared[2] = s.rstd;
    }
    write(v, Honest{}, index, {.pivot = shared[0], .delta = shared[1], .rstd = shared[2]});
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes(), .workspace_bytes = statistics_bytes})

}  // namespace ladder::groupnorm::forward_wrong
