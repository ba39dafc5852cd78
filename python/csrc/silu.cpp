// silu and its gradient: dev/silu on tensors of any shape.
#include "dev/silu/silu.h"

#include "python/csrc/plans.h"

namespace ladder::python {
namespace {

using silu::Backward;
using silu::Forward;

// Returns nullopt for a type or size that no kernel takes. SiLU is elementwise: rows and columns matter only in the
// problem's name.
std::optional<silu::Problem> problem_of(const Tensor& x) {
  const std::optional<Dtype> dtype = dtype_of(x);
  const Sizes sizes = sizes_of(x);
  if (!dtype || !countable(sizes)) return std::nullopt;
  const std::int64_t columns = is_channels_last(x) ? sizes[1] : sizes.empty() ? 1 : sizes.back();
  return silu::Problem{
      .n = static_cast<int>(product(sizes) / columns), .c = static_cast<int>(columns), .dtype = *dtype};
}

Tensor silu_forward(const Tensor& given) {
  expect(is_floating(given), "silu");
  if (const auto problem = problem_of(given)) {
    const Tensor x = to_dense(given, is_channels_last(given)), y = new_like(given);
    if (run<Forward>(*problem, {.x = data(x), .y = y.mutable_data_ptr()}, x)) return y;
  }
  return std::get<0>(call<Tensor>("ladder::silu_formula", "", given));
}

Tensor silu_backward(const Tensor& given_dy, const Tensor& given_x) {
  expect(is_floating(given_x) && fits(given_dy, sizes_of(given_x), given_x), "silu_backward");
  if (const auto problem = problem_of(given_x)) {
    const bool channels_last = is_channels_last(given_x);
    const Tensor x = to_dense(given_x, channels_last), dy = to_dense(given_dy, channels_last), dx = new_like(given_x);
    if (run<Backward>(*problem, {.x = data(x), .dy = data(dy), .dx = dx.mutable_data_ptr()}, x)) return dx;
  }
  return std::get<0>(call<Tensor>("ladder::silu_backward_formula", "", given_dy, given_x));
}

LADDER_OPERATORS(m) {
  m.impl("silu", TORCH_BOX(&silu_forward));
  m.impl("silu_backward", TORCH_BOX(&silu_backward));
}

}  // namespace
}  // namespace ladder::python
