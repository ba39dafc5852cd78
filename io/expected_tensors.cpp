#include "io/expected_tensors.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace ladder::io {
namespace {

// "tensor 'a' is missing" or "tensor 'a' and 3 more are missing"
std::string listed(const std::vector<std::string>& names, const char* one, const char* several) {
  if (names.size() == 1) return fmt::format("tensor '{}' {}", names[0], one);
  return fmt::format("tensor '{}' and {} more {}", names[0], names.size() - 1, several);
}

}  // namespace

std::vector<ExpectedTensor> tensors_of(const SafetensorsFile& file) {
  std::vector<ExpectedTensor> tensors;
  for (const StoredTensor& tensor : file.tensors()) tensors.push_back({tensor.name, tensor.shape});
  return tensors;
}

void expect_tensors(const std::string& what, const std::vector<ExpectedTensor>& found,
                    const std::vector<ExpectedTensor>& expected,
                    const std::function<std::string(const std::vector<std::string>& extra)>& known) {
  std::map<std::string, const Shape*> of_file, of_model;
  for (const ExpectedTensor& tensor : found) of_file[tensor.name] = &tensor.shape;
  for (const ExpectedTensor& tensor : expected) of_model[tensor.name] = &tensor.shape;

  std::vector<std::string> missing, extra, reshaped;
  for (const ExpectedTensor& tensor : expected) {
    const auto there = of_file.find(tensor.name);
    if (there == of_file.end()) {
      missing.push_back(tensor.name);
    } else if (*there->second != tensor.shape) {
      reshaped.push_back(tensor.name);
    }
  }
  for (const ExpectedTensor& tensor : found) {
    if (!of_model.contains(tensor.name)) extra.push_back(tensor.name);
  }
  if (missing.empty() && extra.empty() && reshaped.empty()) return;

  std::vector<std::string> reasons;
  if (std::string reason = known ? known(extra) : ""; !reason.empty()) reasons.push_back(std::move(reason));
  if (!missing.empty()) reasons.push_back(listed(missing, "is missing", "are missing"));
  if (!extra.empty()) reasons.push_back(listed(extra, "is not the model's", "are not the model's"));
  if (!reshaped.empty()) {
    const std::string& name = reshaped[0];
    const std::string more = reshaped.size() > 1 ? fmt::format(", and {} more differ", reshaped.size() - 1) : "";
    reasons.push_back(fmt::format("tensor '{}' has shape {} instead of {}{}", name, to_string(*of_file[name]),
                                  to_string(*of_model[name]), more));
  }
  std::string message = what + " does not fit the model: ";
  for (std::size_t i = 0; i < reasons.size(); ++i) message += (i > 0 ? "; " : "") + reasons[i];
  throw Failure(one_line(message));
}

}  // namespace ladder::io
