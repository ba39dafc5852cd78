// Accumulates in bf16.
#include "tests/wrong/conv3x3/fprop/fprop.h"

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Steps : Honest {
  __device__ float add(float sum, float term) const { return to_float(from_float<__nv_bfloat16>(sum + term)); }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
