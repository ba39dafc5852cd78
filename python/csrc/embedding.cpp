// timestep_embedding: dev/embedding on time steps [n].
#include "dev/embedding/embedding.h"

#include "python/csrc/plans.h"

namespace ladder::python {
namespace {

using embedding::Timestep;

// Passes int32 time steps unchanged; converts all other types to fp32, as the formula does.
Tensor timestep_embedding(const Tensor& given, std::int64_t dim, ScalarType type) {
  expect(given.dim() == 1 && dim >= 1, "timestep_embedding");
  const bool real = given.scalar_type() != ScalarType::Int;
  const Tensor t = to_contiguous(real ? as_type(given, ScalarType::Float) : given);
  const Tensor y = empty(t, {t.size(0), dim}, type);
  const std::optional<Dtype> dtype = dtype_of(y);
  if (dtype && countable({t.size(0), dim})) {
    const embedding::Problem problem{
        .n = static_cast<int>(t.size(0)), .c = static_cast<int>(dim), .real = real, .dtype = *dtype};
    if (run<Timestep>(problem, {.t = data(t), .y = y.mutable_data_ptr()}, t)) return y;
  }
  return std::get<0>(call<Tensor>("ladder::timestep_embedding_formula", "", given, dim, type));
}

LADDER_OPERATORS(m) { m.impl("timestep_embedding", TORCH_BOX(&timestep_embedding)); }

}  // namespace
}  // namespace ladder::python
