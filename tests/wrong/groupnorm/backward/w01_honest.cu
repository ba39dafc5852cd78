// No cheat: the kernel that all others spoil. It must pass, or nothing is proven by the others' failing.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Honest>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::backward_wrong

LADDER_CHEATS(ladder::groupnorm::backward_wrong::Backward, ladder::groupnorm::Backward,
              ladder::groupnorm::wrong_problems())
