// No cheat: the kernel that all others spoil. It must pass, or nothing is proven by their failing.
#include "tests/wrong/conv3x3/fprop/fprop.h"
#include "tests/wrong/conv3x3/problems.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.y[index] = from_float<T>(output(v, index));
  }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong

LADDER_CHEATS(ladder::conv3x3::fprop_wrong::Fprop, ladder::conv3x3::Fprop, ladder::conv3x3::wrong_problems())
