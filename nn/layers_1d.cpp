#include "core/error.h"
#include "nn/layers.h"

namespace ladder::nn {

conv1d::Problem Layers::problem_of_conv1d(const Input& in, const Parameter& weight, ValueId residual) const {
  LADDER_CHECK(!trains(), "sequences have no backward pass");
  const int first = extent(in.x, 2);
  const int others = in.x_rest == kNoValue ? 0 : extent(in.x_rest, 2);
  return {.n = extent(in.x, 0),
          .l = extent(in.x, 1),
          .c = first + others,
          .k = static_cast<int>(weight.shape[0]),
          .taps = static_cast<int>(weight.shape[2]),
          .residual = residual != kNoValue,
          .dtype = net_.dtype,
          .split = others == 0 ? 0 : first};
}

ValueId Layers::append_conv1d(const std::string& name, conv1d::Problem problem, ValueId x, ValueId w, ValueId bias,
                              ValueId residual) {
  problem.bias = bias != kNoValue;
  const ValueId y = output(name, stored(), {problem.n, problem.out_l(), problem.k});
  tape_.run<conv1d::Fprop>(name, problem, {{"x", x}, {"w", w}, {"bias", bias}, {"residual", residual}, {"y", y}});
  return y;
}

ValueId Layers::conv1d(const std::string& name, ValueId x, Conv1d kind, ValueId residual) {
  conv1d::Problem problem = problem_of_conv1d({.x = x}, (*net_.parameters)[name + ".weight"], residual);
  problem.stride2 = kind == Conv1d::halving;
  problem.transposed = kind == Conv1d::doubling;
  return append_conv1d(name, problem, x, parameter(name + ".weight"), parameter(name + ".bias"), residual);
}

ValueId Layers::conv1d_more(const std::string& name, const std::string& suffix, ValueId x, ValueId sum) {
  const std::string weight = name + ".weight" + suffix;
  const conv1d::Problem problem = problem_of_conv1d({.x = x}, (*net_.parameters)[weight], sum);
  return append_conv1d(name + suffix, problem, x, parameter(weight), kNoValue, sum);
}

ValueId Layers::conv1d_block(const std::string& name, const Input& in, int groups, const std::string& layer,
                             ValueId residual) {
  const std::string conv = name + ".block.0", norm = name + ".block.1";
  conv1d::Problem problem = problem_of_conv1d(in, (*net_.parameters)[conv + ".weight"], residual);
  problem.g = groups;
  problem.mish = true;
  ValueId film_step = kNoValue, film = kNoValue;
  if (!layer.empty()) {
    const Parameters::Group& group = net_.parameters->group(film_.group);
    const std::int64_t first = group.row.at(layer);
    problem.film = film_.scales;
    problem.shift = !film_.scales;
    problem.pitch = static_cast<int>(group.rows);
    film_step = tape_.value("film_step", Dtype::f32, {problem.film_width()}, *film_.table,
                            (film_.step * group.rows + first) * sizeof(float));
    film = tape_.value("film", Dtype::f32, {problem.n, problem.pitch}, *film_.rows, first * sizeof(float));
  }
  const ValueId y = output(name, stored(), {problem.n, problem.l, problem.k});
  tape_.run<conv1d::Block>(name, problem,
                           {{"x", in.x},
                            {"x_rest", in.x_rest},
                            {"w", parameter(conv + ".weight")},
                            {"bias", parameter(conv + ".bias")},
                            {"gamma", parameter(norm + ".weight")},
                            {"beta", parameter(norm + ".bias")},
                            {"film_step", film_step},
                            {"film", film},
                            {"residual", residual},
                            {"y", y}});
  return y;
}

}  // namespace ladder::nn
