// Writes dq where dk belongs, and dk where dq does.
#include "tests/wrong/attention/backward/backward.h"

namespace ladder::attention::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ Place place(const Problem& p, long long index) const {
    Place at = Honest::place(p, index);
    if (at.part < 2) at.part = 1 - at.part;
    return at;
  }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::backward_wrong
