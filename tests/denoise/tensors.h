// Tensors of a policy's file, for tests.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors.h"
#include "policy/policy_file.h"
#include "policy/policy_names.h"

namespace ladder::denoise::test {

struct Tensor {
  io::Shape shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

// Returns the network's made-up weights under the names of a file.
inline Tensors made_up_tensors(const nn::Unet1dConfig& config, const Names& names = {}) {
  Tensors tensors;
  auto weights = nn::made_up_weights(config);
  for (const nn::PublishedTensor& tensor : nn::published_tensors(config)) {
    tensors[names.in_file(tensor.name)] = {tensor.shape, std::move(weights.at(tensor.name))};
  }
  return tensors;
}

inline void write_tensors(const std::filesystem::path& file, const Tensors& tensors,
                          const io::Metadata& metadata = {}) {
  std::vector<io::FloatTensor> floats;
  for (const auto& [name, tensor] : tensors) floats.push_back({name, tensor.shape, tensor.values});
  io::write_floats(file, floats, metadata);
}

}  // namespace ladder::denoise::test
