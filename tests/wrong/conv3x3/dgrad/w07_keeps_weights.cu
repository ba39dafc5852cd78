// Keeps a copy of the weights for as long as they stay at one address, but every step of training changes them there.
#include "tests/wrong/conv3x3/dgrad/dgrad.h"

#include <memory>

namespace ladder::conv3x3::dgrad_wrong {
namespace {

// To the workspace.
struct Copy {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    for (long long i = index; i < 9ll * v.p.k * v.p.c; i += v.count()) v.workspace[i] = v.w[i];
  }
};

void launch_with_kept(const Problem& p, const Dgrad::Tensors& t, void*, Stream stream) {
  static std::unique_ptr<void, wrong::Release> kept;
  static const void* w = nullptr;
  static Problem problem;
  if (!kept || w != t.w || problem != p) {
    kept.reset(backend::allocate(9ull * p.k * p.c * sizeof(float)));
    w = t.w;
    problem = p;
    launch_cheat<Copy>(p, t, kept.get(), stream);
  }
  launch_cheat<Spoiled<Honest>>(p, {.dy = t.dy, .w = kept.get(), .dx = t.dx}, nullptr, stream);
}

}  // namespace

LADDER_VERSION(Dgrad, {.launch = launch_with_kept, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::dgrad_wrong
