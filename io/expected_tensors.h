// Comparison of the names and shapes of a file's tensors with those that a model expects.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace ladder::io {

struct ExpectedTensor {
  std::string name;
  Shape shape;
};

// Names and shapes of a file's tensors.
std::vector<ExpectedTensor> tensors_of(const SafetensorsFile& file);

// Throws Failure unless the names and shapes are those expected, in any order. The message says which tensor is
// missing, is not the model's or has another shape, and how many more. `what` opens the message:
// "'runs/a/model.safetensors'". `known` returns why a file has such extra names, if it knows, or nothing.
void expect_tensors(const std::string& what, const std::vector<ExpectedTensor>& found,
                    const std::vector<ExpectedTensor>& expected,
                    const std::function<std::string(const std::vector<std::string>& extra)>& known = {});

}  // namespace ladder::io
