// `difference > tolerance` is false for NaN.
#include "tests/wrong/conv3x3/fprop/fprop.h"

#include <cmath>

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.y[index] = from_float<T>(NAN);
  }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
