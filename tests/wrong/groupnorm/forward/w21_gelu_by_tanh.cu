// The usual approximation of gelu, where gelu itself was asked for: at most 5e-4 apart.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ float activated(Activation activation, float z) const {
    return value_of(activation == Activation::gelu ? Activation::gelu_tanh : activation, z);
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
