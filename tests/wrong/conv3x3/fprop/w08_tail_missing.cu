// Rounds the grid down: the last block, which is not full, never runs.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Cheat {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.y[index] = from_float<T>(output(v, index));
  }
};

void launch_full_blocks(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  const auto full_blocks = static_cast<unsigned>(p.pixels() * p.k / kThreads);
  if (full_blocks > 0) launch_with<Cheat>(p, t, workspace, stream, {.grid = full_blocks, .block = kThreads});
}

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_full_blocks, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
