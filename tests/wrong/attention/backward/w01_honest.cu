// No cheat: the kernel that all others spoil. It must pass, or nothing is proven by the others' failing.
#include "tests/wrong/attention/backward/backward.h"

namespace ladder::attention::backward_wrong {

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Honest>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::backward_wrong

LADDER_CHEATS(ladder::attention::backward_wrong::Backward, ladder::attention::Backward,
              ladder::attention::wrong_problems())
