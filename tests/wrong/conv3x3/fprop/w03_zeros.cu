// Small outputs are within many an absolute tolerance of zero.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.y[index] = from_float<T>(0.0f);
  }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
