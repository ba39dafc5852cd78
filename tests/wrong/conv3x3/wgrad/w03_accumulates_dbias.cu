// Overwrites dw, but adds to dbias.
#include "tests/wrong/conv3x3/wgrad/wgrad.h"

namespace ladder::conv3x3::wgrad_wrong {
namespace {

struct Steps : Honest {
  template <class T>
  __device__ float first(const View<T>& v, long long index) const {
    return v.is_bias(index) ? v.load(index) : 0.0f;
  }
};

}  // namespace

LADDER_VERSION(Wgrad, {.launch = launch_both<Steps>, .dtypes = stored_dtypes(), .workspace_bytes = partial_bytes})

}  // namespace ladder::conv3x3::wgrad_wrong
