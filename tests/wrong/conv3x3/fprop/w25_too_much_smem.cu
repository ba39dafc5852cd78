// Asks for more shared memory than there is, and ignores that the launch was refused.
#include "tests/wrong/conv3x3/fprop/fprop.h"

#include <exception>

namespace ladder::conv3x3::fprop_wrong {
namespace {

void launch_refused(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  constexpr std::size_t kTooMuch = std::size_t{1} << 20;
  try {
    launch_with<Spoiled<Honest>>(p, t, workspace, stream,
                                 {.grid = num_blocks(p), .block = kThreads, .dynamic_smem = kTooMuch});
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_refused, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
