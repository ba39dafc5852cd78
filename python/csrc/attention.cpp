// attention_qkv and attention with their gradients: dev/attention on qkv [n, t, 3c], or on q, k and v [n, t, heads, d].
#include "dev/attention/attention.h"

#include <limits>
#include <string>

#include "python/csrc/plans.h"

namespace ladder::python {
namespace {

using attention::Backward;
using attention::Forward;
using attention::QkvLayout;
using attention::Strides;

bool fit(const Tensor& qkv, std::int64_t heads) {
  return qkv.dim() == 3 && is_floating(qkv) && heads >= 1 && heads <= qkv.size(2) && qkv.size(2) % (3 * heads) == 0;
}

// Returns nullopt for a type or size that no kernel takes.
std::optional<attention::Problem> problem_of(const Tensor& qkv, std::int64_t heads, const std::string& order,
                                             bool tf32) {
  if (order != "legacy" && order != "new") {
    throw UsageError("attention_qkv: no order '" + order + "'; there are legacy, new");
  }
  const std::optional<Dtype> dtype = dtype_of(qkv, tf32);
  if (!dtype || !countable(sizes_of(qkv))) return std::nullopt;
  return attention::Problem{.n = static_cast<int>(qkv.size(0)),
                            .t = static_cast<int>(qkv.size(1)),
                            .heads = static_cast<int>(heads),
                            .d = static_cast<int>(qkv.size(2) / (3 * heads)),
                            .dtype = *dtype,
                            .layout = order == "new" ? QkvLayout::order_new : QkvLayout::legacy};
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

// Returns x [n, t, heads, d] without a copy if kernels can load its rows 16 bytes at a time, else a contiguous copy.
Tensor rows_of(const Tensor& x) {
  const std::int64_t run = 16 / static_cast<std::int64_t>(size_of(*dtype_of(x)));
  bool vectorizable = reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 == 0 && x.stride(3) == 1;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t stride = x.stride(i);
    vectorizable = vectorizable && (x.size(i) == 1 || (stride % run == 0 && stride <= std::numeric_limits<int>::max()));
  }
  return vectorizable && (x.size(1) == 1 || x.stride(1) > 0) ? x : to_contiguous(x);
}

// Returns x's strides in elements, or Strides{} if x is contiguous as [n, t, heads, d]. Strides of dimensions of size 1
// are ignored.
Strides strides_of(const Tensor& x) {
  const std::int64_t dense[] = {x.size(1) * x.size(2) * x.size(3), x.size(2) * x.size(3), x.size(3)};
  const auto stride = [&](int i) { return static_cast<int>(x.size(i) == 1 ? dense[i] : x.stride(i)); };
  const Strides strides = {.image = stride(0), .head = stride(2), .token = stride(1)};
  const bool usual = strides.image == dense[0] && strides.token == dense[1] && strides.head == dense[2];
  return usual ? Strides{} : strides;
}

bool fit(const Tensor& q, const Tensor& k, const Tensor& v) {
  return q.dim() == 4 && is_floating(q) && fits(k, sizes_of(q), q) && fits(v, sizes_of(q), q);
}

std::optional<attention::Problem> problem_of(const Tensor& q, bool tf32) {
  const std::optional<Dtype> dtype = dtype_of(q, tf32);
  if (!dtype || !countable(sizes_of(q))) return std::nullopt;
  return attention::Problem{.n = static_cast<int>(q.size(0)),
                            .t = static_cast<int>(q.size(1)),
                            .heads = static_cast<int>(q.size(2)),
                            .d = static_cast<int>(q.size(3)),
                            .dtype = *dtype,
                            .layout = QkvLayout::separate};
}

std::tuple<Tensor, Tensor> attend(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v, bool tf32) {
  expect(fit(given_q, given_k, given_v), "attention");
  if (auto problem = problem_of(given_q, tf32)) {
    const Tensor q = rows_of(given_q), k = rows_of(given_k), v = rows_of(given_v);
    problem->q = strides_of(q);
    problem->k = strides_of(k);
    problem->v = strides_of(v);
    const Tensor o = empty(q, sizes_of(q), q.scalar_type());
    const Tensor lse = empty(q, {q.size(0), q.size(2), q.size(1)}, ScalarType::Float);
    const Forward::Tensors tensors = {.qkv = nullptr,
                                      .o = o.mutable_data_ptr(),
                                      .lse = lse.mutable_data_ptr<float>(),
                                      .q = data(q),
                                      .k = data(k),
                                      .v = data(v)};
    if (run<Forward>(*problem, tensors, q)) return {o, lse};
  }
  return call<Tensor, Tensor>("ladder::attention_formula", "", given_q, given_k, given_v, tf32);
}

std::tuple<Tensor, Tensor, Tensor> attend_backward(const Tensor& given_d_o, const Tensor& given_q,
                                                   const Tensor& given_k, const Tensor& given_v, const Tensor& given_o,
                                                   const Tensor& given_lse, bool tf32) {
  expect(fit(given_q, given_k, given_v) && fits(given_d_o, sizes_of(given_q), given_q) &&
             fits(given_o, sizes_of(given_q), given_q) &&
             fits_parameter(given_lse, {given_q.size(0), given_q.size(2), given_q.size(1)}, given_q),
         "attention_backward");
  if (auto problem = problem_of(given_q, tf32)) {
    const Tensor q = rows_of(given_q), k = rows_of(given_k), v = rows_of(given_v), d_o = rows_of(given_d_o);
    problem->q = strides_of(q);
    problem->k = strides_of(k);
    problem->v = strides_of(v);
    problem->d_o = strides_of(d_o);
    const Tensor o = to_contiguous(given_o);
    const MaybeTensor lse = as_parameter(given_lse);
    const auto gradient = [&] { return empty(q, sizes_of(q), q.scalar_type()); };
    const Tensor dq = gradient(), dk = gradient(), dv = gradient();
    const Backward::Tensors tensors = {.qkv = nullptr,
                                       .o = data(o),
                                       .lse = floats(lse),
                                       .d_o = data(d_o),
                                       .dqkv = nullptr,
                                       .q = data(q),
                                       .k = data(k),
                                       .v = data(v),
                                       .dq = dq.mutable_data_ptr(),
                                       .dk = dk.mutable_data_ptr(),
                                       .dv = dv.mutable_data_ptr()};
    if (run<Backward>(*problem, tensors, q)) return {dq, dk, dv};
  }
  return call<Tensor, Tensor, Tensor>("ladder::attention_backward_formula", "", given_d_o, given_q, given_k, given_v,
                                      given_o, given_lse, tf32);
}

LADDER_OPERATORS(m) {
  m.impl("attention", TORCH_BOX(&attend));
  m.impl("attention_backward", TORCH_BOX(&attend_backward));
  m.impl("attention_qkv", TORCH_BOX(&attention_qkv));
  m.impl("attention_qkv_backward", TORCH_BOX(&attention_qkv_backward));
}

}  // namespace
}  // namespace ladder::python
