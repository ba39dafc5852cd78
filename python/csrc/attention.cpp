// attention_qkv and its gradient: dev/attention on qkv [n, t, 3c].
#include "dev/attention/attention.h"

#include <string>

#include "python/csrc/plans.h"

namespace ladder::python {
namespace {

using attention::Backward;
using attention::Forward;

bool fit(const Tensor& qkv, std::int64_t heads) {
  return qkv.dim() == 3 && is_floating(qkv) && heads >= 1 && heads <= qkv.size(2) && qkv.size(2) % (3 * heads) == 0;
}

// Nothing for what no kernel takes.
std::optional<attention::Problem> problem_of(const Tensor& qkv, std::int64_t heads, const std::string& order,
                                             bool tf32) {
  if (order != "legacy" && order != "new") {
    throw UsageError("attention_qkv: no order '" + order + "'; there are legacy, new");
  }
  const std::optional<Dtype> dtype = dtype_of(qkv, tf32);
  if (!dtype || !countable(sizes_of(qkv)) || order != "legacy") return std::nullopt;
  return attention::Problem{.n = static_cast<int>(qkv.size(0)),
                            .t = static_cast<int>(qkv.size(1)),
                            .heads = static_cast<int>(heads),
                            .d = static_cast<int>(qkv.size(2) / (3 * heads)),
                            .dtype = *dtype};
}

std::tuple<Tensor, Tensor> attention_qkv(const Tensor& given, std::int64_t heads, const std::string& order, bool tf32) {
  expect(fit(given, heads), "attention_qkv");
  if (const auto problem = problem_of(given, heads, order, tf32)) {
    const Tensor qkv = to_contiguous(given);
    const Tensor o = empty(qkv, {qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.scalar_type());
    const Tensor lse = empty(qkv, {qkv.size(0), heads, qkv.size(1)}, ScalarType::Float);
    Forward::Tensors tensors = {};
    tensors.qkv = data(qkv);
    tensors.o = o.mutable_data_ptr();
    tensors.lse = lse.mutable_data_ptr<float>();
    if (run<Forward>(*problem, tensors, qkv)) return {o, lse};
  }
  return call<Tensor, Tensor>("ladder::attention_qkv_formula", "", given, heads, order, tf32);
}

Tensor attention_qkv_backward(const Tensor& given_d_o, const Tensor& given_qkv, const Tensor& given_o,
                              const Tensor& given_lse, std::int64_t heads, const std::string& order, bool tf32) {
  expect(fit(given_qkv, heads), "attention_qkv_backward");
  const Sizes of_o = {given_qkv.size(0), given_qkv.size(1), given_qkv.size(2) / 3};
  expect(fits(given_d_o, of_o, given_qkv) && fits(given_o, of_o, given_qkv) &&
             fits_parameter(given_lse, {of_o[0], heads, of_o[1]}, given_qkv),
         "attention_qkv_backward");
  if (const auto problem = problem_of(given_qkv, heads, order, tf32)) {
    const Tensor qkv = to_contiguous(given_qkv), o = to_contiguous(given_o), d_o = to_contiguous(given_d_o);
    const MaybeTensor lse = as_parameter(given_lse);
    const Tensor dqkv = empty(qkv, sizes_of(qkv), qkv.scalar_type());
    Backward::Tensors tensors = {};
    tensors.qkv = data(qkv);
    tensors.o = data(o);
    tensors.lse = floats(lse);
    tensors.d_o = data(d_o);
    tensors.dqkv = dqkv.mutable_data_ptr();
    if (run<Backward>(*problem, tensors, qkv)) return dqkv;
  }
  return std::get<0>(call<Tensor>("ladder::attention_qkv_backward_formula", "", given_d_o, given_qkv, given_o,
                                  given_lse, heads, order, tf32));
}

LADDER_OPERATORS(m) {
  m.impl("attention_qkv", TORCH_BOX(&attention_qkv));
  m.impl("attention_qkv_backward", TORCH_BOX(&attention_qkv_backward));
}

}  // namespace
}  // namespace ladder::python
