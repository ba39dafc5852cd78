// Layers of images [n, h, w, c]. The rows that some of them add to every pixel are fp32 [n, c], one per image: the time
// step's embedding, from nn/layers_film.cpp.
#include "nn/layers.h"

#include <utility>

#include "core/error.h"
#include "dev/add/add.h"
#include "dev/attention/attention.h"
#include "dev/concat/concat.h"
#include "dev/gemm/gemm.h"
#include "dev/resample/resample.h"

namespace ladder::nn {

void append_addition(Tape& tape, const std::string& name, ValueId a, ValueId b, ValueId y) {
  const auto& shape = tape[y].shape;
  add::Problem p{.c = static_cast<int>(shape.back()), .dtype = tape[y].dtype};
  if (shape.size() > 1) p.n = static_cast<int>(shape[0]);
  if (shape.size() > 2) p.h = static_cast<int>(shape[1]);
  for (std::size_t i = 2; i + 1 < shape.size(); ++i) p.w *= static_cast<int>(shape[i]);
  tape.run<add::Residual>(name, p, {{"a", a}, {"b", b}, {"y", y}});
}

// Values.

int Layers::extent(ValueId id, int dimension) const { return static_cast<int>(tape_[id].shape[dimension]); }

ValueId Layers::output(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape, const Region* region) {
  const ValueId y = region == nullptr ? tape_.value(name, dtype, std::move(shape))
                                      : tape_.value(name, dtype, std::move(shape), *region);
  if (trains()) tape_.set_requires_grad(y);
  return y;
}

ValueId Layers::parameter(const std::string& name) {
  const Parameter& p = (*net_.parameters)[name];
  const bool copied = p.range == Parameter::Range::matrices;
  const Dtype dtype = copied ? stored() : Dtype::f32;
  return tape_.value(name, dtype, p.shape, copied ? *net_.weights.copies : *net_.weights.values,
                     p.begin * size_of(dtype));
}

ValueId Layers::parameter_gradient(const std::string& name) {
  const Parameter& p = (*net_.parameters)[name];
  const bool is_matrix = p.range == Parameter::Range::matrices;
  const Dtype dtype = is_matrix ? stored() : Dtype::f32;
  return tape_.value("d " + name, dtype, p.shape, *net_.gradients, net_.parameters->gradient_offset(p.begin, stored()));
}

gemm::Problem Layers::product_of(const Value& x, const Value& y, Dtype dtype) {
  return {.m = static_cast<int>(y.elements() / y.shape.back()),
          .n = static_cast<int>(y.shape.back()),
          .k = static_cast<int>(x.shape.back()),
          .bias = true,
          .dtype = dtype};
}

ValueId Layers::like(ValueId id) {
  const Value value = tape_[id];
  return tape_.value("d " + value.name, value.dtype, value.shape);
}

template <class P>
Layers::Input Layers::input_of(typename P::Problem& problem, ValueId x) {
  // A joined concatenation is an ordinary value; an unjoined one exists only as its parts a and b.
  const auto found = concatenations_.find(x);
  if (found == concatenations_.end() || found->second.joined) return {.x = x};
  auto& [a, b, joined] = found->second;
  problem.split = extent(a, 3);
  if (serves<P>(problem)) return {.x = a, .x_rest = b};
  problem.split = 0;
  const concat::Problem both{
      .n = extent(a, 0), .h = extent(a, 1), .w = extent(a, 2), .c = extent(a, 3), .k = extent(b, 3), .dtype = stored()};
  tape_.run<concat::Join>(tape_[x].name, both, {{"a", a}, {"b", b}, {"y", x}});
  joined = true;
  return {.x = x};
}

// Convolutions.

conv3x3::Problem Layers::problem_of_conv(ValueId x, int out, const Epilogue& epilogue) const {
  return {.n = extent(x, 0),
          .h = extent(x, 1),
          .w = extent(x, 2),
          .c = extent(x, 3),
          .k = out,
          .bias = true,
          .residual = epilogue.residual != kNoValue,
          .dtype = net_.dtype,
          .embedding = epilogue.pitch,
          .first = epilogue.first};
}

ValueId Layers::append_conv3x3(const std::string& name, ValueId x, int out, const Epilogue& epilogue,
                               const Region* result) {
  const conv3x3::Problem problem = problem_of_conv(x, out, {});
  const ValueId weight = parameter(name + ".weight");
  const ValueId y = output(name, stored(), {problem.n, problem.h, problem.w, out}, result);
  tape_.run<conv3x3::Fprop>(name, problem_of_conv(x, out, epilogue),
                            {{"x", x},
                             {"w", weight},
                             {"bias", parameter(name + ".bias")},
                             {"e", epilogue.e},
                             {"r", epilogue.residual},
                             {"y", y}});
  if (!trains()) return y;
  tape_.on_backward([=, this] {
    const ValueId dy = gradient(y);
    if (epilogue.residual != kNoValue) tape_.add_gradient(epilogue.residual, dy);
    conv3x3::Problem of_weight = problem;
    of_weight.bias =
        !epilogue.accumulates_bias_gradient;  // with accumulates_bias_gradient, set_rows() appends the bias gradients
    tape_.run_on_side_stream<conv3x3::Wgrad>(
        name, of_weight,
        {{"x", x},
         {"dy", dy},
         {"dw", parameter_gradient(name + ".weight")},
         {"dbias", of_weight.bias ? parameter_gradient(name + ".bias") : kNoValue}});
    if (!tape_[x].requires_grad) return;
    const ValueId dx = like(x);
    tape_.run<conv3x3::Dgrad>(name, problem, {{"dy", dy}, {"w", weight}, {"dx", dx}});
    tape_.add_gradient(x, dx);
  });
  return y;
}

ValueId Layers::conv3x3(const std::string& name, ValueId x, int out, const Region* result) {
  return append_conv3x3(name, x, out, {}, result);
}

ValueId Layers::conv3x3_add_rows(const std::string& conv, ValueId x, int out, const std::string& name,
                                 const std::string& group, const std::string& layer) {
  Epilogue rows = rows_of(group, layer);
  rows.accumulates_bias_gradient = accumulates_bias_gradient(conv, group, rows);
  if (!serves<conv3x3::Fprop>(problem_of_conv(x, out, rows)))
    return add_rows(
        name, append_conv3x3(conv, x, out, {.accumulates_bias_gradient = rows.accumulates_bias_gradient}, nullptr),
        group, layer);
  const ValueId y = append_conv3x3(conv, x, out, rows, nullptr);
  if (trains()) on_backward_of_rows(name, y, rows);
  return y;
}

ValueId Layers::conv3x3_residual(const std::string& conv, ValueId x, int out, const std::string& name,
                                 ValueId residual) {
  const Epilogue epilogue{.residual = residual};
  if (!serves<conv3x3::Fprop>(problem_of_conv(x, out, epilogue)))
    return this->residual(name, residual, conv3x3(conv, x, out));
  return append_conv3x3(conv, x, out, epilogue, nullptr);
}

ValueId Layers::conv1x1(const std::string& name, ValueId x, int out, ValueId residual) {
  const ValueId y = begin_conv1x1(name, x, out);
  finish_conv1x1(y, name, x, residual);
  return y;
}

ValueId Layers::begin_conv1x1(const std::string& name, ValueId x, int out) {
  const ValueId y = output(name, stored(), {extent(x, 0), extent(x, 1), extent(x, 2), out});
  // Backward runs in reverse order of registration. This step runs after those of the layers between begin_conv1x1()
  // and finish_conv1x1(), and adds their gradients of x.
  if (trains()) tape_.on_backward([=, this] { conv1x1_input_gradient(name, x, y); });
  return y;
}

void Layers::finish_conv1x1(ValueId y, const std::string& name, ValueId x, ValueId residual) {
  const gemm::Problem problem = product_of(tape_[x], tape_[y], net_.dtype);
  gemm::Problem forward = problem;
  forward.residual = residual != kNoValue;
  const Input in = input_of<gemm::Fprop>(forward, x);
  tape_.run<gemm::Fprop>(name, forward,
                         {{"x", in.x},
                          {"x_rest", in.x_rest},
                          {"w", parameter(name + ".weight")},
                          {"bias", parameter(name + ".bias")},
                          {"r", residual},
                          {"y", y}});
  if (!trains()) return;
  tape_.on_backward([=, this] {
    const ValueId dy = gradient(y);
    if (residual != kNoValue) tape_.add_gradient(residual, dy);
    gemm::Problem of_weights = problem;
    const Input in = input_of<gemm::Wgrad>(of_weights, x);
    tape_.run_on_side_stream<gemm::Wgrad>(name, of_weights,
                                          {{"x", in.x},
                                           {"x_rest", in.x_rest},
                                           {"dy", dy},
                                           {"dw", parameter_gradient(name + ".weight")},
                                           {"dbias", parameter_gradient(name + ".bias")}});
  });
}

// Appends the operation that computes x's gradient: dy w plus the gradient that x already has. If x is a concatenation,
// the operation writes the gradients of the parts a and b instead, to dx and dx_rest.
void Layers::conv1x1_input_gradient(const std::string& name, ValueId x, ValueId y) {
  if (!tape_[x].requires_grad) return;
  const ValueId accumulated = tape_.has_gradient(x) ? gradient(x) : kNoValue;
  const auto parts = concatenations_.find(x);
  const bool split = parts != concatenations_.end();
  const ValueId dx = like(split ? parts->second.a : x);
  const ValueId dx_rest = split ? like(parts->second.b) : kNoValue;
  gemm::Problem problem = product_of(tape_[x], tape_[y], net_.dtype);
  problem.accumulate = accumulated != kNoValue;
  problem.split = split ? extent(parts->second.a, 3) : 0;
  tape_.run<gemm::Dgrad>(
      name, problem,
      {{"dy", gradient(y)}, {"w", parameter(name + ".weight")}, {"r", accumulated}, {"dx", dx}, {"dx_rest", dx_rest}});
  if (!split) return tape_.replace_gradient(x, dx);
  if (tape_.has_gradient(parts->second.b)) throw Failure(name + ": the skip has a gradient before its concatenation's");
  tape_.add_gradient(parts->second.a, dx);
  tape_.add_gradient(parts->second.b, dx_rest);
}

// Normalisation and attention.

ValueId Layers::group_norm(const std::string& name, ValueId x, int groups, groupnorm::Activation activation) {
  const int n = extent(x, 0), h = extent(x, 1), w = extent(x, 2), c = extent(x, 3);
  const groupnorm::Problem problem{
      .n = n, .h = h, .w = w, .c = c, .g = groups, .activation = activation, .dtype = stored()};
  groupnorm::Problem forward = problem;
  const Input in = input_of<groupnorm::Forward>(forward, x);
  const ValueId gamma = parameter(name + ".weight");
  const ValueId beta = parameter(name + ".bias");
  const ValueId y = output(name, stored(), tape_[x].shape);
  const ValueId mean = tape_.value(name + " mean", Dtype::f32, {n, groups});
  const ValueId rstd = tape_.value(name + " rstd", Dtype::f32, {n, groups});
  tape_.run<groupnorm::Forward>(
      name, forward,
      {{"x", in.x}, {"x_rest", in.x_rest}, {"gamma", gamma}, {"beta", beta}, {"y", y}, {"mean", mean}, {"rstd", rstd}});
  if (!trains()) return y;
  tape_.on_backward([=, this] {
    const ValueId dx = like(x);
    GroupNormNeighbours neighbours = neighbours_of_group_norm(problem, x, dx);
    const Input of_backward = input_of<groupnorm::Backward>(neighbours.problem, x);
    tape_.run<groupnorm::Backward>(name, neighbours.problem,
                                   {{"x", of_backward.x},
                                    {"x_rest", of_backward.x_rest},
                                    {"dy", gradient(y)},
                                    {"gamma", gamma},
                                    {"beta", beta},
                                    {"mean", mean},
                                    {"rstd", rstd},
                                    {"dx", dx},
                                    {"dgamma", parameter_gradient(name + ".weight")},
                                    {"dbeta", parameter_gradient(name + ".bias")},
                                    {"addend", neighbours.addend},
                                    {"addend2", neighbours.addend2},
                                    {"de", neighbours.de}});
    tape_.add_gradient(x, dx);
  });
  return y;
}

// Returns the normalisation's backward problem with one neighbour fused, or `plain` if no version fuses it. If x has
// one or two gradients already, the neighbour is their addition to dx. If x has none and rows were added to x's pixels,
// the neighbour is the sum of dx over the pixels, which is the rows' gradient.
Layers::GroupNormNeighbours Layers::neighbours_of_group_norm(const groupnorm::Problem& plain, ValueId x, ValueId dx) {
  constexpr int kMostAddends = 2;
  GroupNormNeighbours neighbours{.problem = plain};
  const auto rows = rows_added_.find(x);
  if (const int num_accumulated = tape_.num_gradients(x); num_accumulated > 0 && num_accumulated <= kMostAddends) {
    neighbours.problem.addends = num_accumulated;
    if (!serves<groupnorm::Backward>(neighbours.problem)) return {.problem = plain};
    const std::vector<ValueId> addends = tape_.take_gradients(x);
    neighbours.addend = addends.front();
    if (num_accumulated > 1) neighbours.addend2 = addends.back();
  } else if (num_accumulated == 0 && rows != rows_added_.end()) {
    neighbours.problem.embedding = rows->second.pitch;
    neighbours.problem.first = rows->second.first;
    if (!serves<groupnorm::Backward>(neighbours.problem)) return {.problem = plain};
    neighbours.de = rows->second.dy;
    rows->second.summed_in = dx;
  }
  return neighbours;
}

ValueId Layers::attention(const std::string& name, ValueId qkv, int head_size) {
  const int n = extent(qkv, 0), h = extent(qkv, 1), w = extent(qkv, 2), c = extent(qkv, 3) / 3;
  const int heads = c / head_size;
  const attention::Problem problem{.n = n, .t = h * w, .heads = heads, .d = head_size, .dtype = net_.dtype};
  const ValueId o = output(name + ".attention", stored(), {n, h, w, c});
  const ValueId lse = tape_.value(name + " lse", Dtype::f32, {n, heads, h * w});
  tape_.run<attention::Forward>(name, problem, {{"qkv", qkv}, {"o", o}, {"lse", lse}});
  if (!trains()) return o;
  tape_.on_backward([=, this] {
    const ValueId dqkv = like(qkv);
    tape_.run<attention::Backward>(name, problem,
                                   {{"qkv", qkv}, {"o", o}, {"lse", lse}, {"d_o", gradient(o)}, {"dqkv", dqkv}});
    tape_.add_gradient(qkv, dqkv);
  });
  return o;
}

// Layers without parameters.

ValueId Layers::residual(const std::string& name, ValueId a, ValueId b) {
  const ValueId y = output(name, stored(), tape_[a].shape);
  append_addition(tape_, name, a, b, y);
  if (trains()) {
    tape_.on_backward([=, this] {
      for (const ValueId addend : {a, b}) tape_.add_gradient(addend, gradient(y));
    });
  }
  return y;
}

ValueId Layers::concat(const std::string& name, ValueId a, ValueId b) {
  const ValueId y = output(name, stored(), {extent(a, 0), extent(a, 1), extent(a, 2), extent(a, 3) + extent(b, 3)});
  concatenations_[y] = {.a = a, .b = b};
  return y;
}

ValueId Layers::pool(const std::string& name, ValueId x) {
  const int n = extent(x, 0), h = extent(x, 1), w = extent(x, 2), c = extent(x, 3);
  const resample::Problem problem{.n = n, .h = h, .w = w, .c = c, .dtype = stored()};
  const ValueId y = output(name, stored(), {n, h / 2, w / 2, c});
  tape_.run<resample::Pool>(name, problem, {{"x", x}, {"y", y}});
  if (!trains()) return y;
  tape_.on_backward([=, this] {
    const ValueId dx = like(x);
    tape_.run<resample::PoolBackward>(name, problem, {{"dy", gradient(y)}, {"dx", dx}});
    tape_.add_gradient(x, dx);
  });
  return y;
}

ValueId Layers::upsample(const std::string& name, ValueId x) {
  const int n = extent(x, 0), h = 2 * extent(x, 1), w = 2 * extent(x, 2), c = extent(x, 3);
  const resample::Problem problem{.n = n, .h = h, .w = w, .c = c, .dtype = stored()};
  const ValueId y = output(name, stored(), {n, h, w, c});
  tape_.run<resample::Upsample>(name, problem, {{"x", x}, {"y", y}});
  if (!trains()) return y;
  tape_.on_backward([=, this] {
    const ValueId dx = like(x);
    tape_.run<resample::UpsampleBackward>(name, problem, {{"dy", gradient(y)}, {"dx", dx}});
    tape_.add_gradient(x, dx);
  });
  return y;
}

}  // namespace ladder::nn
