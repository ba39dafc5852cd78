// Leaves the right answer and a changed input, from which the next one is wrong.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Spoil {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    if (index == 0) const_cast<T*>(v.x)[1 % (v.p.h * v.p.w * v.p.c)] = from_float<T>(0.0f);
  }
};

void launch_both(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Spoiled<Honest>>(p, t, workspace, stream);
  launch_cheat<Spoil>(p, t, workspace, stream);
}

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_both, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
