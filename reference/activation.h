// Activations and their derivatives in double precision, for the references of all layers.
#pragma once

#include <cmath>
#include <numbers>

#include "dev/common/activation_kind.h"

namespace ladder::reference {

inline double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }
inline double normal_cdf(double z) { return 0.5 * std::erfc(-z * std::numbers::sqrt2 / 2); }
inline double tanh_argument(double z) { return std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z); }

inline double value(Activation activation, double z) {
  switch (activation) {
    case Activation::identity:
      return z;
    case Activation::relu:
      return z < 0 ? 0 : z;
    case Activation::silu:
      return z * sigmoid(z);
    case Activation::gelu:
      return z * normal_cdf(z);
    case Activation::gelu_tanh:
      return 0.5 * z * (1 + std::tanh(tanh_argument(z)));
    case Activation::mish:
      return z * std::tanh(std::log1p(std::exp(z)));
  }
  return 0;
}

inline double derivative(Activation activation, double z) {
  switch (activation) {
    case Activation::identity:
      return 1;
    case Activation::relu:
      return z <= 0 ? 0 : 1;
    case Activation::silu:
      return sigmoid(z) * (1 + z * (1 - sigmoid(z)));
    case Activation::gelu:
      return normal_cdf(z) + z * std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
    case Activation::gelu_tanh: {
      const double t = std::tanh(tanh_argument(z));
      const double slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * z * z);
      return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * slope;
    }
    case Activation::mish: {
      const double t = std::tanh(std::log1p(std::exp(z)));
      return t + z * (1 - t * t) * sigmoid(z);
    }
  }
  return 0;
}

}  // namespace ladder::reference
