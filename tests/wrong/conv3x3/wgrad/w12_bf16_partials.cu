// Keeps partial sums in bf16.
#include "tests/wrong/conv3x3/wgrad/wgrad.h"

namespace ladder::conv3x3::wgrad_wrong {
namespace {

struct Steps : Honest {
  __device__ float rounded(float partial) const { return to_float(from_float<__nv_bfloat16>(partial)); }
};

}  // namespace

LADDER_VERSION(Wgrad, {.launch = launch_both<Steps>, .dtypes = stored_dtypes(), .workspace_bytes = partial_bytes})

}  // namespace ladder::conv3x3::wgrad_wrong
