// No cheat: the kernel that all others spoil. It must pass, or nothing is proven by their failing.
#include "tests/wrong/conv3x3/dgrad/dgrad.h"
#include "tests/wrong/conv3x3/problems.h"

namespace ladder::conv3x3::dgrad_wrong {

LADDER_VERSION(Dgrad, {.launch = launch_cheat<Spoiled<Honest>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::dgrad_wrong

LADDER_CHEATS(ladder::conv3x3::dgrad_wrong::Dgrad, ladder::conv3x3::Dgrad, ladder::conv3x3::wrong_problems())
