// Lets the keys behind the last one count, zeros up to the end of a tile of 16.
#include "tests/wrong/attention/forward/forward.h"

namespace ladder::attention::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ int keys(const Problem& p, int) const { return (p.t + 15) / 16 * 16; }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::forward_wrong
