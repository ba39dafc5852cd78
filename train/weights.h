// Weights in files beside those that a model has.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace ladder::train {

// What a model has, for comparison with what a file has.
struct ExpectedTensor {
  std::string name;
  io::Shape shape;
};

// Of a file.
std::vector<ExpectedTensor> tensors_of(const io::SafetensorsFile& file);

// Throws Failure unless the names and shapes are those expected, in any order: which tensor is missing, is not the
// model's or has another shape, and how many more. `what` opens the message: "'runs/a/model.safetensors'".
void expect(const std::string& what, const std::vector<ExpectedTensor>& found,
            const std::vector<ExpectedTensor>& expected);

// Weights alone: any safetensors file with exactly the expected tensors, in fp32, or in bf16 or fp16, which become
// fp32. model.safetensors and ema.safetensors of a checkpoint are such files.
std::map<std::string, std::vector<float>> import_weights(const std::filesystem::path& file,
                                                         const std::vector<ExpectedTensor>& expected);

}  // namespace ladder::train
