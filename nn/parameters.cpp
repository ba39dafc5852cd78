#include "nn/parameters.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "core/error.h"

namespace ladder::nn {
namespace {

using Range = Parameter::Range;
using Start = Parameter::Start;

void add_weight_and_bias(std::vector<Parameter>& all, const std::string& name, std::vector<std::int64_t> shape,
                         Range range, Start start, const std::string& weight_group, const std::string& bias_group) {
  std::int64_t fan_in = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) fan_in *= shape[i];
  const std::int64_t out = shape[0];
  all.push_back({.name = name + ".weight",
                 .shape = std::move(shape),
                 .range = range,
                 .start = start,
                 .fan_in = fan_in,
                 .group = weight_group});
  all.push_back({.name = name + ".bias", .shape = {out}, .start = start, .fan_in = fan_in, .group = bias_group});
}

}  // namespace

std::int64_t Parameter::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

void Declaration::conv(const std::string& name, std::vector<std::int64_t> shape, bool zero, const std::string& group) {
  const Start start = zero ? Start::zeros : Start::uniform;
  add_weight_and_bias(parameters, name, std::move(shape), Range::matrices, start, {}, group);
}

void Declaration::linear(const std::string& name, std::int64_t in, std::int64_t out, const std::string& group) {
  add_weight_and_bias(parameters, name, {out, in}, Range::fp32_matrices, Start::uniform, group, group);
}

void Declaration::normalisation(const std::string& name, std::int64_t channels) {
  parameters.push_back({.name = name + ".weight", .shape = {channels}, .start = Start::ones});
  parameters.push_back({.name = name + ".bias", .shape = {channels}, .start = Start::zeros});
}

Parameters::Parameters(Declaration declared) : all_(std::move(declared.parameters)) {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (!by_name_.emplace(all_[i].name, i).second) throw Failure("two parameters are called " + all_[i].name);
  }
  place_range(Range::matrices);
  matrices_end_ = size_;
  place_range(Range::fp32_matrices);
  place_groups(Range::fp32_matrices);
  vectors_begin_ = size_;
  place_range(Range::vectors);
  place_groups(Range::vectors);
}

void Parameters::place_range(Range range) {
  for (Parameter& p : all_) {
    if (p.range != range || !p.group.empty()) continue;
    p.begin = size_;
    size_ += aligned(p.elements());
  }
}

// Each layer's rows begin at a multiple of kAlignment in the group.
void Parameters::place_groups(Range range) {
  const bool weights = range == Range::fp32_matrices;
  for (const Parameter& first : all_) {
    if (first.range != range || first.group.empty()) continue;
    Group& group = groups_[first.group];
    if (weights ? group.rows > 0 : group.bias_begin > 0) continue;  // placed with its first layer
    (weights ? group.weights_begin : group.bias_begin) = size_;
    for (Parameter& p : all_) {
      if (p.range != range || p.group != first.group) continue;
      p.begin = size_;
      size_ += aligned(p.shape[0]) * (p.elements() / p.shape[0]);
      if (!weights) continue;
      group.columns = p.shape[1];
      group.row.emplace(p.name.substr(0, p.name.rfind('.')), group.rows);
      group.rows += aligned(p.shape[0]);
    }
  }
}

const Parameter& Parameters::operator[](std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) throw Failure("the model has no parameter " + std::string(name));
  return all_[found->second];
}

std::int64_t Parameters::count() const {
  std::int64_t sum = 0;
  for (const Parameter& p : all_) sum += p.elements();
  return sum;
}

std::size_t Parameters::gradient_offset(std::int64_t begin, Dtype stored) const {
  const std::int64_t in_matrices = std::min(begin, matrices_end_);
  return in_matrices * size_of(stored) + (begin - in_matrices) * sizeof(float);
}

const Parameters::Group& Parameters::group(std::string_view name) const {
  const auto found = groups_.find(name);
  if (found == groups_.end()) throw Failure("the model has no group of layers " + std::string(name));
  return found->second;
}

std::vector<float> Parameters::initial(std::uint64_t seed) const {
  std::vector<float> values(size_, 0.0f);
  std::mt19937_64 random(seed);
  for (const Parameter& p : all_) {
    if (p.start == Start::zeros) continue;
    const double bound = 1.0 / std::sqrt(static_cast<double>(p.fan_in));
    for (std::int64_t i = 0; i < p.elements(); ++i) {
      // 53 random bits as a number from -1 to 1: the distributions of <random> differ between libraries.
      const double uniform = static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;
      values[p.begin + i] = p.start == Start::ones ? 1.0f : static_cast<float>(bound * uniform);
    }
  }
  return values;
}

}  // namespace ladder::nn
