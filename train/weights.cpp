#include "train/weights.h"

#include <string_view>

#include <fmt/format.h>

#include "core/error.h"

namespace ladder::train {
namespace {

// Returns the reason why an official checkpoint of guided-diffusion does not fit, if an extra name reveals it; else
// empty.
std::string known_difference(const std::vector<std::string>& extra) {
  for (const std::string& name : extra) {
    const std::string_view block = std::string_view(name).substr(0, name.find('.'));
    if ((block == "input_blocks" && name.ends_with(".op.weight")) ||
        (block == "output_blocks" && name.ends_with(".conv.weight"))) {
      return fmt::format(
          "it has convolutions in its up- and downsampling ({}), which this model does not have: "
          "conv_resample was on",
          name);
    }
    if (block == "label_emb") {
      return fmt::format("it is conditioned on classes ({}), which this model is not: class_cond was on", name);
    }
  }
  return {};
}

}  // namespace

void expect(const std::string& what, const std::vector<ExpectedTensor>& found,
            const std::vector<ExpectedTensor>& expected) {
  io::expect_tensors(what, found, expected, known_difference);
}

std::map<std::string, std::vector<float>> import_weights(const std::filesystem::path& file,
                                                         const std::vector<ExpectedTensor>& expected) {
  const io::SafetensorsFile weights(file);
  expect(fmt::format("'{}'", file.string()), tensors_of(weights), expected);
  std::map<std::string, std::vector<float>> values;
  for (const ExpectedTensor& tensor : expected) values[tensor.name] = weights.floats(tensor.name);
  return values;
}

}  // namespace ladder::train
