// Masks the keys behind the query, as language models do.
#include "tests/wrong/attention/forward/forward.h"

namespace ladder::attention::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ int keys(const Problem&, int query) const { return query + 1; }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::forward_wrong
