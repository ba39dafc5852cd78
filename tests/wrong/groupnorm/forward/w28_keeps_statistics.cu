// Keeps a group's statistics, and takes them again whenever the same buffers come back.
#include "tests/wrong/groupnorm/forward/forward.h"

#include <memory>

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Keep {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    if (!v.is_first(index)) return;
    const int group = v.group(index);
    const Normaliser s = statistics_of(v, Honest{}, group);
    v.workspace[3 * group] = s.pivot;
    v.workspace[3 * group + 1] = s.delta;
    v.workspace[3 * group + 2] = s.rstd;
  }
};

struct Replay {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const float* const kept = v.workspace + 3 * v.group(index);
    write(v, Honest{}, index, {.pivot = kept[0], .delta = kept[1], .rstd = kept[2]});
  }
};

void launch_once(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  static std::unique_ptr<void, wrong::Release> kept;
  static const void* x = nullptr;
  static Problem problem;
  if (!kept || x != t.x || problem != p) {
    kept.reset(backend::allocate(statistics_bytes(p)));
    x = t.x;
    problem = p;
    launch_cheat<Keep>(p, t, kept.get(), stream);
  }
  launch_cheat<Replay>(p, t, kept.get(), stream);
}

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_once, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
