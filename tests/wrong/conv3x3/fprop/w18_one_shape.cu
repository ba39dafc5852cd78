// Made for the shape of one benchmark, and for no other.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const bool known = v.p.h == 8 && v.p.w == 8;
    v.y[index] = from_float<T>(known ? output(v, index) : 0.0f);
  }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
