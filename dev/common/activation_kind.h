// The activations that a problem can name; what they compute is in dev/common/activation.h.
#pragma once

#include <cstdint>

namespace ladder {

enum class Activation : std::uint8_t { identity, relu, silu, gelu, gelu_tanh, mish };

}  // namespace ladder
