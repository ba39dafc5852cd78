// Passes that do one pass's work for several layers of one shape: tensors named x0, dy0, .., x1, dy1, ..
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/tensors.h"

namespace ladder {

// Tensor specs of `layers` layers, layer after layer: `single`, with the layer's number appended to each name.
inline std::vector<TensorSpec> tensors_of_layers(const std::vector<TensorSpec>& single, int layers) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < layers; ++i) {
    for (TensorSpec spec : single) {
      spec.name += std::to_string(i);
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

// wgrad's tensors by layer: x, dy, dw and dbias; null for layers that the problem does not have.
template <class Tensors, int kMost>
Tensors wgrad_of_layers(const Pointers& at) {
  Tensors t{};
  for (int i = 0; i < kMost; ++i) {
    const std::string number = std::to_string(i);
    t.x[i] = at.get<const void>("x" + number);
    t.dy[i] = at.get<const void>("dy" + number);
    t.dw[i] = at.get<void>("dw" + number);
    t.dbias[i] = at.get<float>("dbias" + number);
  }
  return t;
}

}  // namespace ladder
