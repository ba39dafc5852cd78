// linear and its gradients: dev/gemm on x [..., k] and w [n, k], whatever the leading dimensions.
#include "dev/gemm/gemm.h"

#include <string>

#include "python/csrc/plans.h"

namespace ladder::python {
namespace {

using gemm::Dgrad;
using gemm::Fprop;
using gemm::Wgrad;

// Returns nullopt for a type or size that no kernel takes.
std::optional<gemm::Problem> problem_of(std::optional<Dtype> dtype, const Sizes& of_x, const Sizes& of_y) {
  if (!dtype || !countable(of_x) || !countable(of_y) || !countable({of_y.back(), of_x.back()})) return std::nullopt;
  return gemm::Problem{.m = static_cast<int>(product(of_x) / of_x.back()),
                       .n = static_cast<int>(of_y.back()),
                       .k = static_cast<int>(of_x.back()),
                       .dtype = *dtype};
}

Sizes with_columns(const Tensor& x, std::int64_t columns) {
  Sizes sizes = sizes_of(x);
  sizes.back() = columns;
  return sizes;
}

// Returns whether `rows` and w [n, k] fit together. `columns` is the dimension of w that matches the last one of
// `rows`: 1 for x, 0 for dy.
bool fit(const Tensor& rows, const Tensor& w, int columns) {
  return rows.dim() >= 1 && is_floating(rows) && w.dim() == 2 && w.size(columns) == sizes_of(rows).back() &&
         fits(w, sizes_of(w), rows);
}

Tensor linear(const Tensor& given, const Tensor& given_w, const MaybeTensor& given_bias,
              const MaybeTensor& given_residual, const std::string& activation, bool tf32) {
  expect(fit(given, given_w, 1) && fits_parameter(given_bias, {given_w.size(0)}, given), "linear");
  const Sizes of_y = with_columns(given, given_w.size(0));
  expect(!given_residual || fits(*given_residual, of_y, given), "linear");
  if (activation != "identity" && activation != "silu") {
    throw UsageError("linear: no activation '" + activation + "'; there are identity, silu");
  }
  if (auto problem = problem_of(dtype_of(given, tf32), sizes_of(given), of_y)) {
    problem->bias = given_bias.has_value();
    problem->params16 = is_params16(given_bias, given);
    problem->residual = given_residual.has_value();
    problem->silu = activation == "silu";
    const Tensor x = to_contiguous(given), w = to_contiguous(given_w);
    const MaybeTensor bias = as_parameter(given_bias, problem->params16);
    const MaybeTensor residual = given_residual ? MaybeTensor(to_contiguous(*given_residual)) : std::nullopt;
    const Tensor y = empty(x, of_y, x.scalar_type());
    const Fprop::Tensors tensors = {
        .x = data(x), .w = data(w), .bias = floats(bias), .r = data(residual), .y = y.mutable_data_ptr()};
    if (run<Fprop>(*problem, tensors, x)) return y;
  }
  return std::get<0>(
      call<Tensor>("ladder::linear_formula", "", given, given_w, given_bias, given_residual, activation, tf32));
}

Tensor linear_dgrad(const Tensor& given_dy, const Tensor& given_w, bool tf32) {
  expect(fit(given_dy, given_w, 0), "linear_dgrad");
  const Sizes of_x = with_columns(given_dy, given_w.size(1));
  if (const auto problem = problem_of(dtype_of(given_dy, tf32), of_x, sizes_of(given_dy))) {
    const Tensor dy = to_contiguous(given_dy), w = to_contiguous(given_w);
    const Tensor dx = empty(dy, of_x, dy.scalar_type());
    const Dgrad::Tensors tensors = {
        .dy = data(dy), .w = data(w), .r = nullptr, .dx = dx.mutable_data_ptr(), .dx_rest = nullptr};
    if (run<Dgrad>(*problem, tensors, dy)) return dx;
  }
  return std::get<0>(call<Tensor>("ladder::linear_dgrad_formula", "", given_dy, given_w, tf32));
}

// dbias gets the bias' type. Without a bias dbias is empty.
std::tuple<Tensor, Tensor> linear_wgrad(const Tensor& given_dy, const Tensor& given_x, const MaybeTensor& bias,
                                        bool tf32) {
  expect(given_dy.dim() >= 1 && given_x.dim() >= 1 && is_floating(given_x), "linear_wgrad");
  const std::int64_t n = sizes_of(given_dy).back(), k = sizes_of(given_x).back();
  expect(fits(given_dy, with_columns(given_x, n), given_x) && fits_parameter(bias, {n}, given_x), "linear_wgrad");
  if (auto problem = problem_of(dtype_of(given_x, tf32), sizes_of(given_x), sizes_of(given_dy))) {
    problem->bias = bias.has_value();
    problem->params16 = is_params16(bias, given_x);
    const Tensor dy = to_contiguous(given_dy), x = to_contiguous(given_x);
    const Tensor dw = empty(x, {n, k}, x.scalar_type());
    const Tensor dbias = empty(x, {bias ? n : 0}, problem->params16 ? x.scalar_type() : ScalarType::Float);
    const Wgrad::Tensors tensors = {.x = data(x),
                                    .dy = data(dy),
                                    .dw = dw.mutable_data_ptr(),
                                    .dbias = bias ? static_cast<float*>(dbias.mutable_data_ptr()) : nullptr};
    if (run<Wgrad>(*problem, tensors, x)) return {dw, bias ? as_type(dbias, bias->scalar_type()) : dbias};
  }
  return call<Tensor, Tensor>("ladder::linear_wgrad_formula", "", given_dy, given_x, bias, tf32);
}

LADDER_OPERATORS(m) {
  m.impl("linear", TORCH_BOX(&linear));
  m.impl("linear_dgrad", TORCH_BOX(&linear_dgrad));
  m.impl("linear_wgrad", TORCH_BOX(&linear_wgrad));
}

}  // namespace
}  // namespace ladder::python
