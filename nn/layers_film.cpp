// Layers of rows (one row per image, fp32): the time-step embedding and its projections for the residual blocks.
#include <utility>

#include "core/error.h"
#include "dev/add/add.h"
#include "dev/embedding/embedding.h"
#include "dev/gemm/gemm.h"
#include "dev/silu/silu.h"
#include "nn/layers.h"

namespace ladder::nn {

void Layers::append_linear(const std::string& name, ValueId x, ValueId y, const Linear& layer) {
  const gemm::Problem problem = product_of(tape_[x], tape_[y], Dtype::f32);
  tape_.run<gemm::Fprop>(name, problem, {{"x", x}, {"w", layer.w}, {"bias", layer.b}, {"y", y}});
  if (!trains()) return;
  tape_.on_backward([=, this] {
    const ValueId dy = gradient(y);
    tape_.run<gemm::Wgrad>(name, problem, {{"x", x}, {"dy", dy}, {"dw", layer.dw}, {"dbias", layer.db}});
    if (!tape_[x].requires_grad) return;
    const ValueId dx = like(x);
    tape_.run<gemm::Dgrad>(name, problem, {{"dy", dy}, {"w", layer.w}, {"dx", dx}});
    tape_.add_gradient(x, dx);
  });
}

ValueId Layers::linear(const std::string& name, ValueId x, int out) {
  const ValueId y = output(name, Dtype::f32, {extent(x, 0), out});
  Linear layer{.w = parameter(name + ".weight"), .b = parameter(name + ".bias"), .dw = kNoValue, .db = kNoValue};
  if (trains()) {
    layer.dw = parameter_gradient(name + ".weight");
    layer.db = parameter_gradient(name + ".bias");
  }
  append_linear(name, x, y, layer);
  return y;
}

ValueId Layers::silu(const std::string& name, ValueId x) {
  const silu::Problem problem{.n = extent(x, 0), .c = extent(x, 1)};
  const ValueId y = output(name, Dtype::f32, tape_[x].shape);
  tape_.run<silu::Forward>(name, problem, {{"x", x}, {"y", y}});
  if (!trains()) return y;
  tape_.on_backward([=, this] {
    const ValueId dx = like(x);
    tape_.run<silu::Backward>(name, problem, {{"x", x}, {"dy", gradient(y)}, {"dx", dx}});
    tape_.add_gradient(x, dx);
  });
  return y;
}

ValueId Layers::sinusoids(const std::string& name, ValueId t, int channels) {
  const ValueId y = tape_.value(name + ".sinusoids", Dtype::f32, {extent(t, 0), channels});
  tape_.run<embedding::Timestep>(name, {.n = extent(t, 0), .c = channels, .real = tape_[t].dtype == Dtype::f32},
                                 {{"t", t}, {"y", y}});
  return y;
}

ValueId Layers::linear_group(const std::string& group, ValueId x, const Region* result) {
  const Parameters::Group& all = net_.parameters->group(group);
  const auto part = [&](const std::string& name, std::vector<std::int64_t> shape, const Region& region,
                        std::size_t offset) { return tape_.value(name, Dtype::f32, std::move(shape), region, offset); };
  const Region& values = *net_.weights.values;
  Linear layer{.w = part(group + ".weight", {all.rows, all.columns}, values, all.weights_begin * sizeof(float)),
               .b = part(group + ".bias", {all.rows}, values, all.bias_begin * sizeof(float)),
               .dw = kNoValue,
               .db = kNoValue};
  if (trains()) {
    const auto gradient = [&](const char* tensor, std::vector<std::int64_t> shape, std::int64_t begin) {
      return part("d " + group + tensor, std::move(shape), *net_.gradients,
                  net_.parameters->gradient_offset(begin, stored()));
    };
    layer.dw = gradient(".weight", {all.rows, all.columns}, all.weights_begin);
    layer.db = gradient(".bias", {all.rows}, all.bias_begin);
  }
  const ValueId y = output(group, Dtype::f32, {extent(x, 0), all.rows}, result);
  append_linear(group, x, y, layer);
  return y;
}

void Layers::set_rows(const std::string& group, ValueId rows, const std::string& biases) {
  if (!trains()) {
    groups_[group] = {.y = rows};
    return;
  }
  const ValueId dy = tape_.value_in_parts("d " + group, Dtype::f32, tape_[rows].shape);
  groups_[group] = {.y = rows, .dy = dy, .biases = biases};
  tape_.add_gradient(rows, dy);
  if (biases.empty()) return;
  const add::Problem over_images{.n = 1, .h = extent(rows, 0), .w = 1, .c = extent(rows, 1)};
  const std::int64_t begin = net_.parameters->group(biases).bias_begin;
  const ValueId sum = tape_.value("d " + biases, Dtype::f32, {extent(rows, 1)}, *net_.gradients,
                                  net_.parameters->gradient_offset(begin, stored()));
  tape_.on_backward([=, this] {
    tape_.run_on_side_stream<add::EmbeddingBackward>(biases, over_images, {{"dy", dy}, {"de", sum}});
  });
}

Layers::Epilogue Layers::rows_of(const std::string& group, const std::string& layer) const {
  const Parameters::Group& all = net_.parameters->group(group);
  const GroupRows& rows = groups_.at(group);
  return {
      .e = rows.y, .de = rows.dy, .pitch = static_cast<int>(all.rows), .first = static_cast<int>(all.row.at(layer))};
}

// Returns whether set_rows() appends the operation that computes this convolution's bias gradient.
bool Layers::accumulates_bias_gradient(const std::string& conv, const std::string& group, const Epilogue& rows) const {
  const std::string& biases = groups_.at(group).biases;
  if (biases.empty()) return false;
  const Parameter& bias = (*net_.parameters)[conv + ".bias"];
  const std::int64_t begin = net_.parameters->group(biases).bias_begin;
  if (bias.group != biases || bias.begin - begin != rows.first) {
    throw Failure(bias.name + " is not in " + biases + " where its layer is in " + group);
  }
  return true;
}

namespace {

add::Problem sum_with_rows(const Value& x, int pitch, int first) {
  const auto extent = [&](int dimension) { return static_cast<int>(x.shape[dimension]); };
  return {
      .n = extent(0), .h = extent(1), .w = extent(2), .c = extent(3), .pitch = pitch, .first = first, .dtype = x.dtype};
}

}  // namespace

void Layers::on_backward_of_rows(const std::string& name, ValueId y, const Epilogue& rows) {
  rows_added_[y] = {.dy = rows.de, .pitch = rows.pitch, .first = rows.first};
  tape_.on_backward([=, this] {
    const ValueId dy = gradient(y);
    if (rows_added_[y].summed_in == dy) return;
    tape_.run<add::EmbeddingBackward>(name, sum_with_rows(tape_[y], rows.pitch, rows.first),
                                      {{"dy", dy}, {"de", rows.de}});
  });
}

ValueId Layers::add_rows(const std::string& name, ValueId x, const std::string& group, const std::string& layer) {
  const Epilogue rows = rows_of(group, layer);
  const ValueId y = output(name + ".embedded", stored(), tape_[x].shape);
  tape_.run<add::Embedding>(name, sum_with_rows(tape_[x], rows.pitch, rows.first), {{"x", x}, {"e", rows.e}, {"y", y}});
  if (!trains()) return y;
  tape_.on_backward([=, this] { tape_.add_gradient(x, gradient(y)); });
  on_backward_of_rows(name, y, rows);
  return y;
}

}  // namespace ladder::nn
