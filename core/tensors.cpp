#include "core/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace ladder {
namespace {

[[noreturn]] void no_tensor(std::string_view name, const std::vector<std::string>& names) {
  throw Failure(fmt::format("no tensor '{}'; there are: {}", name, fmt::join(names, ", ")));
}

std::vector<std::string> names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  names.reserve(specs.size());
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return names;
}

}  // namespace

std::size_t TensorSpec::elements() const {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

std::size_t TensorSpec::bytes() const { return elements() * size_of(dtype); }

std::vector<const TensorSpec*> written(const std::vector<TensorSpec>& specs) {
  std::vector<const TensorSpec*> found;
  for (const TensorSpec& spec : specs) {
    if (spec.is_written()) found.push_back(&spec);
  }
  return found;
}

Traffic each_once(const std::vector<TensorSpec>& specs) {
  Traffic traffic;
  for (const TensorSpec& spec : specs) {
    if (spec.is_read()) traffic.read_bytes += static_cast<double>(spec.bytes());
    if (spec.is_written()) traffic.write_bytes += static_cast<double>(spec.bytes());
  }
  return traffic;
}

void* Pointers::find(std::string_view name) const {
  const auto found = std::find_if(specs_->begin(), specs_->end(), [&](const TensorSpec& s) { return s.name == name; });
  return found == specs_->end() ? nullptr : pointers_[found - specs_->begin()];
}

void* Pointers::operator[](std::string_view name) const {
  if (void* pointer = find(name)) return pointer;
  no_tensor(name, names_of(*specs_));
}

HostTensors::HostTensors(const std::vector<TensorSpec>& specs, std::vector<std::vector<float>> given)
    : values(std::move(given)), names_(names_of(specs)) {
  LADDER_CHECK(values.size() <= names_.size());
  values.resize(names_.size());
}

const std::vector<float>* HostTensors::find(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  return found == names_.end() ? nullptr : &values[found - names_.begin()];
}

const std::vector<float>& HostTensors::operator[](std::string_view name) const {
  if (const std::vector<float>* found = find(name)) return *found;
  no_tensor(name, names_);
}

std::vector<float>& HostTensors::operator[](std::string_view name) {
  return const_cast<std::vector<float>&>(std::as_const(*this)[name]);
}

}  // namespace ladder
