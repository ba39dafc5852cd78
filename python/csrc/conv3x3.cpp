// conv2d_3x3 and its gradients: dev/conv3x3 on images [n, c, h, w] and weights [k, c, 3, 3], channels innermost.
#include "dev/conv3x3/conv3x3.h"

#include "python/csrc/plans.h"

namespace ladder::python {
namespace {

using conv3x3::Dgrad;
using conv3x3::Fprop;
using conv3x3::Wgrad;

// `of_x` and `of_y` are sizes of images [n, c, h, w]. Returns nullopt for a type or size that no kernel takes.
std::optional<conv3x3::Problem> problem_of(std::optional<Dtype> dtype, const Sizes& of_x, const Sizes& of_y,
                                           const MaybeTensor& bias, const Tensor& x) {
  if (!dtype || !countable(of_x) || !countable(of_y)) return std::nullopt;
  return conv3x3::Problem{.n = static_cast<int>(of_x[0]),
                          .h = static_cast<int>(of_x[2]),
                          .w = static_cast<int>(of_x[3]),
                          .c = static_cast<int>(of_x[1]),
                          .k = static_cast<int>(of_y[1]),
                          .bias = bias.has_value(),
                          .params16 = is_params16(bias, x),
                          .dtype = *dtype};
}

Sizes with_channels(const Tensor& image, std::int64_t channels) {
  Sizes sizes = sizes_of(image);
  sizes[1] = channels;
  return sizes;
}

// Returns whether `image` and w [k, c, 3, 3] fit together. `channels` is the dimension of w that matches the image's
// channels: 1 for x, 0 for dy.
bool fit(const Tensor& image, const Tensor& w, int channels) {
  return image.dim() == 4 && is_floating(image) && w.dim() == 4 && w.size(channels) == image.size(1) &&
         fits(w, {w.size(0), w.size(1), 3, 3}, image);
}

Tensor conv2d_3x3(const Tensor& given, const Tensor& given_w, const MaybeTensor& given_bias, bool tf32) {
  expect(fit(given, given_w, 1) && fits_parameter(given_bias, {given_w.size(0)}, given), "conv2d_3x3");
  const Sizes of_y = with_channels(given, given_w.size(0));
  if (const auto problem = problem_of(dtype_of(given, tf32), sizes_of(given), of_y, given_bias, given)) {
    const Tensor x = to_channels_last(given), w = to_channels_last(given_w);
    const MaybeTensor bias = as_parameter(given_bias, problem->params16);
    const Tensor y = empty_channels_last(x, of_y, x.scalar_type());
    const Fprop::Tensors tensors = {.x = data(x), .w = data(w), .bias = floats(bias), .y = y.mutable_data_ptr()};
    if (run<Fprop>(*problem, tensors, x)) return y;
  }
  return std::get<0>(call<Tensor>("ladder::conv2d_3x3_formula", "", given, given_w, given_bias, tf32));
}

Tensor conv2d_3x3_dgrad(const Tensor& given_dy, const Tensor& given_w, bool tf32) {
  expect(fit(given_dy, given_w, 0), "conv2d_3x3_dgrad");
  const Sizes of_x = with_channels(given_dy, given_w.size(1));
  if (const auto problem = problem_of(dtype_of(given_dy, tf32), of_x, sizes_of(given_dy), std::nullopt, given_dy)) {
    const Tensor dy = to_channels_last(given_dy), w = to_channels_last(given_w);
    const Tensor dx = empty_channels_last(dy, of_x, dy.scalar_type());
    const Dgrad::Tensors tensors = {.dy = data(dy), .w = data(w), .dx = dx.mutable_data_ptr()};
    if (run<Dgrad>(*problem, tensors, dy)) return dx;
  }
  return std::get<0>(call<Tensor>("ladder::conv2d_3x3_dgrad_formula", "", given_dy, given_w, tf32));
}

// dw gets w's layout, and dbias the bias' type. Without a bias dbias is empty.
std::tuple<Tensor, Tensor> conv2d_3x3_wgrad(const Tensor& given_dy, const Tensor& given_x, const Tensor& w,
                                            const MaybeTensor& bias, bool tf32) {
  expect(fit(given_x, w, 1) && fits(given_dy, with_channels(given_x, w.size(0)), given_x) &&
             fits_parameter(bias, {w.size(0)}, given_x),
         "conv2d_3x3_wgrad");
  if (const auto problem = problem_of(dtype_of(given_x, tf32), sizes_of(given_x), sizes_of(given_dy), bias, given_x)) {
    const Tensor dy = to_channels_last(given_dy), x = to_channels_last(given_x);
    const Tensor dw = empty_channels_last(x, sizes_of(w), x.scalar_type());
    const Tensor dbias = empty(x, {bias ? w.size(0) : 0}, problem->params16 ? x.scalar_type() : ScalarType::Float);
    const Wgrad::Tensors tensors = {.x = data(x),
                                    .dy = data(dy),
                                    .dw = dw.mutable_data_ptr(),
                                    .dbias = bias ? static_cast<float*>(dbias.mutable_data_ptr()) : nullptr};
    if (run<Wgrad>(*problem, tensors, x)) {
      return {to_dense(dw, is_channels_last(w)), bias ? as_type(dbias, bias->scalar_type()) : dbias};
    }
  }
  return call<Tensor, Tensor>("ladder::conv2d_3x3_wgrad_formula", "", given_dy, given_x, w, bias, tf32);
}

LADDER_OPERATORS(m) {
  m.impl("conv2d_3x3", TORCH_BOX(&conv2d_3x3));
  m.impl("conv2d_3x3_dgrad", TORCH_BOX(&conv2d_3x3_dgrad));
  m.impl("conv2d_3x3_wgrad", TORCH_BOX(&conv2d_3x3_wgrad));
}

}  // namespace
}  // namespace ladder::python
