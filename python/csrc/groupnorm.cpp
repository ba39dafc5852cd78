// group_norm_act: dev/groupnorm on images [n, c, ...] of any rank, their channels innermost.
#include "dev/groupnorm/groupnorm.h"

#include <string>

#include "python/csrc/plans.h"

namespace ladder::python {
namespace {

using groupnorm::Backward;
using groupnorm::Forward;

Activation activation_of(const std::string& name) {
  constexpr std::pair<const char*, Activation> kNames[] = {
      {"identity", Activation::identity}, {"relu", Activation::relu}, {"silu", Activation::silu},
      {"swish", Activation::silu},        {"gelu", Activation::gelu}, {"gelu_tanh", Activation::gelu_tanh},
      {"mish", Activation::mish}};
  for (const auto& [known, activation] : kNames) {
    if (name == known) return activation;
  }
  throw UsageError("no activation '" + name + "'; there are identity, relu, silu (or swish), gelu, gelu_tanh, mish");
}

// Returns nullopt for a type or size that no kernel takes.
std::optional<groupnorm::Problem> problem_of(const Tensor& x, const MaybeTensor& weight, const MaybeTensor& bias,
                                             std::int64_t groups, const std::string& activation, double eps = 1e-5) {
  const Sizes sizes = sizes_of(x);
  expect(sizes.size() >= 2 && is_floating(x) && groups >= 1 && sizes[1] % groups == 0 &&
             weight.has_value() == bias.has_value() && fits_parameter(weight, {sizes[1]}, x) &&
             fits_parameter(bias, {sizes[1]}, x),
         "group_norm_act");
  const std::optional<Dtype> dtype = dtype_of(x);
  if (!dtype || !countable(sizes)) return std::nullopt;
  const std::int64_t pixels = product(Sizes(sizes.begin() + 2, sizes.end()));
  const std::int64_t columns = sizes.size() == 2 ? 1 : sizes.back();
  return groupnorm::Problem{.n = static_cast<int>(sizes[0]),
                            .h = static_cast<int>(pixels / columns),
                            .w = static_cast<int>(columns),
                            .c = static_cast<int>(sizes[1]),
                            .g = static_cast<int>(groups),
                            .activation = activation_of(activation),
                            .affine = weight.has_value(),
                            .params16 = is_params16(weight, x) && is_params16(bias, x),
                            .dtype = *dtype,
                            .eps = static_cast<float>(eps)};
}

std::tuple<Tensor, Tensor, Tensor> group_norm_act(const Tensor& given, const MaybeTensor& weight,
                                                  const MaybeTensor& bias, std::int64_t groups, double eps,
                                                  const std::string& activation) {
  const std::optional<groupnorm::Problem> problem = problem_of(given, weight, bias, groups, activation, eps);
  if (problem) {
    const Tensor x = to_channels_last(given);
    const MaybeTensor gamma = as_parameter(weight, problem->params16), beta = as_parameter(bias, problem->params16);
    const Tensor y = empty_channels_last(x, sizes_of(x), x.scalar_type());
    const Tensor mean = empty(x, {x.size(0), groups}, ScalarType::Float);
    const Tensor rstd = empty(x, {x.size(0), groups}, ScalarType::Float);
    const Forward::Tensors tensors = {.x = data(x),
                                      .gamma = floats(gamma),
                                      .beta = floats(beta),
                                      .y = y.mutable_data_ptr(),
                                      .mean = mean.mutable_data_ptr<float>(),
                                      .rstd = rstd.mutable_data_ptr<float>()};
    if (run<Forward>(*problem, tensors, x)) return {y, mean, rstd};
  }
  return call<Tensor, Tensor, Tensor>("ladder::group_norm_act_formula", "", given, weight, bias, groups, eps,
                                      activation);
}

std::tuple<Tensor, Tensor, Tensor> group_norm_act_backward(const Tensor& given_dy, const Tensor& given_x,
                                                           const MaybeTensor& weight, const MaybeTensor& bias,
                                                           const Tensor& given_mean, const Tensor& given_rstd,
                                                           std::int64_t groups, const std::string& activation) {
  const std::optional<groupnorm::Problem> problem = problem_of(given_x, weight, bias, groups, activation);
  const Sizes statistics = {given_x.size(0), groups};
  expect(fits(given_dy, sizes_of(given_x), given_x) && fits_parameter(given_mean, statistics, given_x) &&
             fits_parameter(given_rstd, statistics, given_x),
         "group_norm_act_backward");
  if (problem) {
    const Tensor x = to_channels_last(given_x), dy = to_channels_last(given_dy);
    const MaybeTensor mean = as_parameter(given_mean), rstd = as_parameter(given_rstd);
    const MaybeTensor gamma = as_parameter(weight, problem->params16), beta = as_parameter(bias, problem->params16);
    const Tensor dx = empty_channels_last(x, sizes_of(x), x.scalar_type());
    const Sizes parameters = {weight ? x.size(1) : 0};
    const ScalarType type = problem->params16 ? x.scalar_type() : ScalarType::Float;
    const Tensor dgamma = empty(x, parameters, type), dbeta = empty(x, parameters, type);
    const Backward::Tensors tensors = {.x = data(x),
                                       .dy = data(dy),
                                       .gamma = floats(gamma),
                                       .beta = floats(beta),
                                       .mean = floats(mean),
                                       .rstd = floats(rstd),
                                       .dx = dx.mutable_data_ptr(),
                                       .dgamma = weight ? static_cast<float*>(dgamma.mutable_data_ptr()) : nullptr,
                                       .dbeta = weight ? static_cast<float*>(dbeta.mutable_data_ptr()) : nullptr};
    if (run<Backward>(*problem, tensors, x)) {
      if (!weight) return {dx, dgamma, dbeta};
      return {dx, as_type(dgamma, weight->scalar_type()), as_type(dbeta, bias->scalar_type())};
    }
  }
  return call<Tensor, Tensor, Tensor>("ladder::group_norm_act_backward_formula", "", given_dy, given_x, weight, bias,
                                      given_mean, given_rstd, groups, activation);
}

LADDER_OPERATORS(m) {
  m.impl("group_norm_act", TORCH_BOX(&group_norm_act));
  m.impl("group_norm_act_backward", TORCH_BOX(&group_norm_act_backward));
}

}  // namespace
}  // namespace ladder::python
