// Ignores the stream it was given, so that a timer on that stream sees no work.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

void launch_elsewhere(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream) {
  launch_cheat<Spoiled<Honest>>(p, t, workspace, nullptr);
}

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_elsewhere, .dtypes = stored_dtypes(), .supports = needs_streams<Problem>})

}  // namespace ladder::conv3x3::fprop_wrong
