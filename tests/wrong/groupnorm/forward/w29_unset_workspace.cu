// Adds into a workspace that it takes to be zero, as fresh memory often is.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Sum {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    if (!v.is_first(index)) return;
    const Normaliser s = statistics_of(v, Honest{}, v.group(index));
    v.workspace[v.group(index)] += s.delta;
  }
};

struct Normalise {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    Normaliser s = statistics_of(v, Honest{}, v.group(index));
    s.delta = v.workspace[v.group(index)];
    write(v, Honest{}, index, s);
  }
};

void launch_both(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Sum>(p, t, workspace, stream);
  launch_cheat<Normalise>(p, t, workspace, stream);
}

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_both, .dtypes = stored_dtypes(), .workspace_bytes = statistics_bytes})

}  // namespace ladder::groupnorm::forward_wrong
