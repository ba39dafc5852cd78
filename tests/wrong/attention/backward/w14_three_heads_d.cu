// Writes the channels of dqkv as [3][heads][d]: right for a single head.
#include "tests/wrong/attention/backward/backward.h"

namespace ladder::attention::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ Place place(const Problem& p, long long index) const {
    Place at = Honest::place(p, index);
    const int part_and_head = at.head * 3 + at.part;
    at.part = part_and_head / p.heads;
    at.head = part_and_head % p.heads;
    return at;
  }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::backward_wrong
