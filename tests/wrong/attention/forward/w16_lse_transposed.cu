// Writes lse as [n, t, heads].
#include "tests/wrong/attention/forward/forward.h"

namespace ladder::attention::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ long long lse_index(const Problem& p, const Place& at) const {
    return (static_cast<long long>(at.image) * p.t + at.token) * p.heads + at.head;
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::forward_wrong
