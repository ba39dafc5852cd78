#include "train/tape.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"

namespace ladder::train {
namespace {

const Pass& pass_of(std::string_view path) {
  const auto slash = path.find('/');
  LADDER_CHECK(slash != std::string_view::npos, std::string(path));
  return find_pass(path.substr(0, slash), path.substr(slash + 1));
}

}  // namespace

std::int64_t Value::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

ValueId Tape::value(std::string name, Dtype dtype, std::vector<std::int64_t> shape) {
  values_.push_back({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)});
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId Tape::value(std::string name, Dtype dtype, std::vector<std::int64_t> shape, const Region& region,
                    std::size_t offset_bytes) {
  const ValueId id = value(std::move(name), dtype, std::move(shape));
  values_[id].region = &region;
  values_[id].offset = offset_bytes;
  return id;
}

void Tape::run(const std::string& name, std::string_view pass, const std::string& problem,
               std::initializer_list<std::pair<std::string_view, ValueId>> tensors) {
  Operation operation{.name = name, .problem = pass_of(pass).parse(problem), .values = {}};
  std::size_t used = 0;
  for (const TensorSpec& spec : operation.problem.tensors) {
    ValueId id = kNoValue;
    for (const auto& [tensor, value] : tensors) {
      if (tensor == spec.name) id = value;
    }
    const std::string where = fmt::format("{}: {} '{}', tensor {}", name, pass, operation.problem.text, spec.name);
    if (id == kNoValue) throw Failure(where + " has no value");
    const Value& value = values_[id];
    if (value.bytes() != spec.bytes() || storage_dtype(value.dtype) != storage_dtype(spec.dtype)) {
      throw Failure(fmt::format("{} is {} elements of {}, but {} has {} of {}", where, spec.elements(),
                                ladder::name(spec.dtype), value.name, value.elements(), ladder::name(value.dtype)));
    }
    operation.values.push_back(id);
    ++used;
  }
  const auto given = static_cast<std::size_t>(
      std::ranges::count_if(tensors, [](const auto& tensor) { return tensor.second != kNoValue; }));
  if (used != given) {
    throw Failure(
        fmt::format("{}: {} '{}' has {} tensors, but {} were given", name, pass, operation.problem.text, used, given));
  }
  operations_.push_back(std::move(operation));
}

void Tape::add_gradient(ValueId of, ValueId gradient) {
  gradients_.resize(values_.size(), kNoValue);
  if (gradients_[of] == kNoValue) {
    gradients_[of] = gradient;
    return;
  }
  const Value value = values_[of];
  const ValueId sum = this->value("d " + value.name, value.dtype, value.shape);
  const auto& shape = value.shape;
  LADDER_CHECK(shape.size() == 2 || shape.size() == 4, value.name);  // [n, c] or [n, h, w, c]
  const bool image = shape.size() == 4;
  run(value.name, "add/residual",
      fmt::format("n{} h{} w{} c{} {}", shape[0], image ? shape[1] : 1, image ? shape[2] : 1, shape.back(),
                  ladder::name(value.dtype)),
      {{"a", gradients_[of]}, {"b", gradient}, {"y", sum}});
  replace_gradient(of, sum);
}

void Tape::replace_gradient(ValueId of, ValueId gradient) {
  gradients_.resize(values_.size(), kNoValue);
  gradients_[of] = gradient;
}

ValueId Tape::gradient(ValueId of) const {
  if (!has_gradient(of)) throw Failure("nothing gave " + values_[of].name + " a gradient");
  return gradients_[of];
}

void Tape::backward() {
  while (!backward_.empty()) {
    const std::function<void()> step = std::move(backward_.back());
    backward_.pop_back();
    step();
  }
}

double Tape::flops() const {
  double sum = 0;
  for (const Operation& operation : operations_) sum += operation.problem.flops;
  return sum;
}

}  // namespace ladder::train
