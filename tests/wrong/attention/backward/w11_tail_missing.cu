// Leaves out the tokens of a last tile that is not whole.
#include "tests/wrong/attention/backward/backward.h"

namespace ladder::attention::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ int tokens(const Problem& p) const { return p.t < 16 ? p.t : p.t / 16 * 16; }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::backward_wrong
