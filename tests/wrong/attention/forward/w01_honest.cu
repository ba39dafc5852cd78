// No cheat: the kernel that all others spoil. It must pass, or nothing is proven by the others' failing.
#include "tests/wrong/attention/forward/forward.h"

namespace ladder::attention::forward_wrong {

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Honest>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::forward_wrong

LADDER_CHEATS(ladder::attention::forward_wrong::Forward, ladder::attention::Forward,
              ladder::attention::wrong_problems())
