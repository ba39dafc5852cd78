// Rounds the shares of the pixels down: the last few pixels belong to none.
#include "tests/wrong/conv3x3/wgrad/wgrad.h"

namespace ladder::conv3x3::wgrad_wrong {
namespace {

struct Steps : Honest {
  __device__ int pixels_of_a_share(int pixels) const { return pixels / kShares; }
};

}  // namespace

LADDER_VERSION(Wgrad, {.launch = launch_both<Steps>, .dtypes = stored_dtypes(), .workspace_bytes = partial_bytes})

}  // namespace ladder::conv3x3::wgrad_wrong
