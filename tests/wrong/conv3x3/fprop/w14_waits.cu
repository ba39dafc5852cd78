// Waits for the device inside launch(), so that its work is over before a timer starts to look.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

void launch_and_wait(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Spoiled<Honest>>(p, t, workspace, stream);
  backend::synchronize();
}

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_and_wait, .dtypes = stored_dtypes(), .supports = needs_streams<Problem>})

}  // namespace ladder::conv3x3::fprop_wrong
