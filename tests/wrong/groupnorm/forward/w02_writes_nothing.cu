// The fastest kernel of all.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    (void)v;
    (void)index;
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
