// Comparison of the tensors in weight files with those of a model.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/expected_tensors.h"

namespace ladder::train {

using io::ExpectedTensor;

// Calls io::expect_tensors(). The message also says why an official checkpoint of guided-diffusion does not fit, where
// that is recognised from extra tensor names.
void expect(const std::string& what, const std::vector<ExpectedTensor>& found,
            const std::vector<ExpectedTensor>& expected);

// Reads a safetensors file with exactly the expected tensors, by name, as fp32. The file's dtype is fp32, bf16 or fp16.
// model.safetensors and ema.safetensors of a checkpoint are such files.
std::map<std::string, std::vector<float>> import_weights(const std::filesystem::path& file,
                                                         const std::vector<ExpectedTensor>& expected);

}  // namespace ladder::train
