// Sums in bf16.
#include "tests/wrong/attention/backward/backward.h"

namespace ladder::attention::backward_wrong {
namespace {

struct Steps : Honest {
  __device__ float add(float sum, float term) const { return to_float(from_float<__nv_bfloat16>(sum + term)); }
};

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::attention::backward_wrong
