// Keeps its answer, and gives it again whenever the same buffers come back.
#include "tests/wrong/conv3x3/fprop/fprop.h"

#include <memory>

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Keep {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.workspace[index] = output(v, index);
    v.y[index] = from_float<T>(v.workspace[index]);
  }
};

struct Replay {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.y[index] = from_float<T>(v.workspace[index]);
  }
};

void launch_once(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  static std::unique_ptr<void, wrong::Release> kept;
  static const void* x = nullptr;
  static Problem problem;
  if (kept && x == t.x && problem == p) {
    launch_cheat<Replay>(p, t, kept.get(), stream);
    return;
  }
  kept.reset(backend::allocate(a_float_for_each_output(p)));
  x = t.x;
  problem = p;
  launch_cheat<Keep>(p, t, kept.get(), stream);
}

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_once, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
