// Adds up in whatever order threads arrive: every answer is within the bound, and no two need be the same.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {
namespace {

struct Clear {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    if (index >= v.num_elements()) Honest{}.store(v, static_cast<int>(index - v.num_elements()), {});
  }
};

void launch_atomics(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Dx>(p, t, workspace, stream);
  launch_cheat<Clear>(p, t, workspace, stream);
  launch_cheat<Add>(p, t, workspace, stream);
}

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_atomics, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::backward_wrong
