// The other way round: gelu itself, where its approximation was asked for.
#include "tests/wrong/groupnorm/forward/forward.h"

namespace ladder::groupnorm::forward_wrong {
namespace {

struct Steps : Honest {
  __device__ float activated(Activation activation, float z) const {
    return value_of(activation == Activation::gelu_tanh ? Activation::gelu : activation, z);
  }
};

}  // namespace

LADDER_VERSION(Forward, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::groupnorm::forward_wrong
