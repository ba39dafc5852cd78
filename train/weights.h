// Weights in files beside those that a model has.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/expected_tensors.h"

namespace ladder::train {

using io::ExpectedTensor;

// As io::expect_tensors(), which says besides why an official checkpoint of guided-diffusion does not fit, where it can tell.
void expect(const std::string& what, const std::vector<ExpectedTensor>& found,
            const std::vector<ExpectedTensor>& expected);

// Weights alone: any safetensors file with exactly the expected tensors, in fp32, or in bf16 or fp16, which become
// fp32. model.safetensors and ema.safetensors of a checkpoint are such files.
std::map<std::string, std::vector<float>> import_weights(const std::filesystem::path& file,
                                                         const std::vector<ExpectedTensor>& expected);

}  // namespace ladder::train
