// No cheat: the kernels that all others spoil. They must pass, or nothing is proven by the others' failing.
#include "tests/wrong/conv3x3/problems.h"
#include "tests/wrong/conv3x3/wgrad/wgrad.h"

namespace ladder::conv3x3::wgrad_wrong {

LADDER_VERSION(Wgrad, {.launch = launch_both<Honest>, .dtypes = stored_dtypes(), .workspace_bytes = partial_bytes})

}  // namespace ladder::conv3x3::wgrad_wrong

LADDER_CHEATS(ladder::conv3x3::wgrad_wrong::Wgrad, ladder::conv3x3::Wgrad, ladder::conv3x3::wrong_problems())
