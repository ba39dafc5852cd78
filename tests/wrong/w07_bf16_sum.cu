// Accumulates in bf16.
#include "tests/wrong/wrong.h"

namespace ladder::wrong {
namespace {

struct Steps : Honest {
  __device__ float add(float sum, float term) const { return to_float(from_float<__nv_bfloat16>(sum + term)); }
};

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::wrong
