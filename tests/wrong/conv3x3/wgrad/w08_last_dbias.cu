// Writes every element of dbias but the last.
#include "tests/wrong/conv3x3/wgrad/wgrad.h"

namespace ladder::conv3x3::wgrad_wrong {
namespace {

struct Steps : Honest {
  template <class T>
  __device__ void store(const View<T>& v, long long index, float value) const {
    if (!v.is_bias(index) || index + 1 < v.count()) v.store(index, value);
  }
};

}  // namespace

LADDER_VERSION(Wgrad, {.launch = launch_both<Steps>, .dtypes = stored_dtypes(), .workspace_bytes = partial_bytes})

}  // namespace ladder::conv3x3::wgrad_wrong
