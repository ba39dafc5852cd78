// Adds to dx instead of overwriting it, as frameworks do with the gradients of parameters.
#include "tests/wrong/conv3x3/dgrad/dgrad.h"

namespace ladder::conv3x3::dgrad_wrong {
namespace {

struct Steps : Honest {
  template <class T>
  __device__ float first(const View<T>& v, long long index) const {
    return to_float(v.dx[index]);
  }
};

}  // namespace

LADDER_VERSION(Dgrad, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::dgrad_wrong
