// Adds into a workspace that it takes to be zero, as fresh memory often is.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.workspace[index] += output(v, index);
    v.y[index] = from_float<T>(v.workspace[index]);
  }
};

}  // namespace

LADDER_VERSION(Fprop,
               {.launch = launch_cheat<Cheat>, .dtypes = stored_dtypes(), .workspace_bytes = a_float_for_each_output})

}  // namespace ladder::conv3x3::fprop_wrong
