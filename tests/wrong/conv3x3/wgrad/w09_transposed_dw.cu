// Writes dw as [c, 3, 3, k].
#include "tests/wrong/conv3x3/wgrad/wgrad.h"

namespace ladder::conv3x3::wgrad_wrong {
namespace {

struct Steps : Honest {
  template <class T>
  __device__ void store(const View<T>& v, long long index, float value) const {
    const long long c = index % v.p.c;
    const long long tap = index / v.p.c % 9;
    const long long k = index / v.p.c / 9;
    v.store(v.is_bias(index) ? index : (c * 9 + tap) * v.p.k + k, value);
  }
};

}  // namespace

LADDER_VERSION(Wgrad, {.launch = launch_both<Steps>, .dtypes = stored_dtypes(), .workspace_bytes = partial_bytes})

}  // namespace ladder::conv3x3::wgrad_wrong
