// The mean of a few outputs everywhere: right on average.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const int few = static_cast<int>(v.count() < 16 ? v.count() : 16);
    float mean = 0;
    for (int i = 0; i < few; ++i) mean += output(v, i) / static_cast<float>(few);
    v.y[index] = from_float<T>(mean);
  }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
