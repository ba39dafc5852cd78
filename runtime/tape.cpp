#include "runtime/tape.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"

namespace ladder {

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

ValueId Tape::value_in_parts(std::string name, Dtype dtype, std::vector<std::int64_t> shape) {
  const ValueId id = value(std::move(name), dtype, std::move(shape));
  values_[id].in_parts = true;
  return id;
}

void Tape::run(const std::string& name, Case problem, Tensors tensors) {
  const std::string what = fmt::format("{}: {} '{}'", name, problem.pass->path(), problem.text);
  Operation operation{.name = name, .problem = std::move(problem), .values = {}, .side_stream = side_stream_};
  std::size_t used = 0;
  for (const TensorSpec& spec : operation.problem.tensors) {
    ValueId id = kNoValue;
    for (const auto& [tensor, value] : tensors) {
      if (tensor == spec.name) id = value;
    }
    const std::string where = fmt::format("{}, tensor {}", what, spec.name);
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
    throw Failure(fmt::format("{} has {} tensors, but {} were given", what, used, given));
  }
  operations_.push_back(std::move(operation));
}

void Tape::add_gradient(ValueId of, ValueId gradient) {
  gradients_.resize(values_.size());
  gradients_[of].push_back(gradient);
}

void Tape::replace_gradient(ValueId of, ValueId gradient) {
  gradients_.resize(values_.size());
  gradients_[of] = {gradient};
}

int Tape::num_gradients(ValueId of) const {
  return of < std::ssize(gradients_) ? static_cast<int>(gradients_[of].size()) : 0;
}

ValueId Tape::gradient(ValueId of, Addition append_addition) {
  if (!has_gradient(of)) throw Failure("nothing gave " + values_[of].name + " a gradient");
  const std::vector<ValueId> summands = gradients_[of];
  const Value value = values_[of];
  ValueId sum = summands.front();
  for (std::size_t i = 1; i < summands.size(); ++i) {
    const ValueId longer = this->value("d " + value.name, value.dtype, value.shape);
    append_addition(*this, value.name, sum, summands[i], longer);
    sum = longer;
  }
  replace_gradient(of, sum);
  return sum;
}

std::vector<ValueId> Tape::take_gradients(ValueId of) {
  return has_gradient(of) ? std::exchange(gradients_[of], {}) : std::vector<ValueId>{};
}

void Tape::backward() {
  while (!backward_.empty()) {
    const BackwardStep step = std::move(backward_.back());
    backward_.pop_back();
    side_stream_ = step.side_stream;
    step.append();
  }
  side_stream_ = false;
}

double Tape::flops() const {
  double sum = 0;
  for (const Operation& operation : operations_) sum += operation.problem.flops;
  return sum;
}

}  // namespace ladder
