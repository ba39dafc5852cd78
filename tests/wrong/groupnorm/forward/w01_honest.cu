// No cheat: the kernel that all others spoil. It must pass, or nothing is proven by the others' failing.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Honest>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong

LADDER_CHEATS(ladder::groupnorm::forward_wrong::Forward, ladder::groupnorm::Forward,
              ladder::groupnorm::wrong_problems())
