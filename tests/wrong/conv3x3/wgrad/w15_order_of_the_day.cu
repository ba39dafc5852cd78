// Begins with another partial sum at every call, so that rounding makes of equal inputs outputs that are not.
#include "tests/wrong/conv3x3/wgrad/wgrad.h"

namespace ladder::conv3x3::wgrad_wrong {
namespace {

template <int kFirst>
struct Rotated {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    float sum = 0;
    for (int i = 0; i < kShares; ++i) sum += v.partial[(kFirst + i) % kShares * v.count() + index];
    v.store(index, sum);
  }
};

void launch_rotated(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  static bool turned = false;
  launch_cheat<Partials<Honest>>(p, t, workspace, stream);
  if (turned) {
    launch_cheat<Rotated<kShares / 2>>(p, t, workspace, stream);
  } else {
    launch_cheat<Rotated<0>>(p, t, workspace, stream);
  }
  turned = !turned;
}

}  // namespace

LADDER_VERSION(Wgrad, {.launch = launch_rotated, .dtypes = stored_dtypes(), .workspace_bytes = partial_bytes})

}  // namespace ladder::conv3x3::wgrad_wrong
