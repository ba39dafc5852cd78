// The reference of add: the formulas of dev/add/add.h in double precision.
#include <cmath>

#include "core/check/check.h"
#include "dev/add/add.h"

namespace ladder::add {
namespace {

Expected zeros(std::int64_t count) { return {std::vector<double>(count), std::vector<double>(count)}; }

void add_term(Expected& out, std::int64_t index, double term) {
  out.value[index] += term;
  out.magnitude[index] += std::abs(term);
}

// The element of [n, pitch] that element `index` of [n, h, w, c] belongs to.
std::int64_t of_image(const Problem& p, std::int64_t index) {
  return index / (std::int64_t{p.pixels()} * p.c) * p.row() + p.first + index % p.c;
}

NamedOutputs residual(const Case& c, const HostTensors& in) {
  const std::int64_t count = problem_of<Residual>(c).elements();
  Expected y = zeros(count);
  for (std::int64_t i = 0; i < count; ++i) {
    add_term(y, i, in["a"][i]);
    add_term(y, i, in["b"][i]);
  }
  return {{"y", std::move(y)}};
}

NamedOutputs embedding(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Embedding>(c);
  Expected y = zeros(p.elements());
  for (std::int64_t i = 0; i < p.elements(); ++i) {
    add_term(y, i, in["x"][i]);
    add_term(y, i, in["e"][of_image(p, i)]);
  }
  return {{"y", std::move(y)}};
}

NamedOutputs embedding_backward(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<EmbeddingBackward>(c);
  Expected de = zeros(std::int64_t{p.n} * p.row());
  if (p.pitch != 0) {  // other columns stay; they are no sum of anything
    for (std::int64_t i = 0; i < std::int64_t{p.n} * p.row(); ++i) {
      const std::int64_t column = i % p.row() - p.first;
      if (column < 0 || column >= p.c) de.value[i] = in["de"][i];
    }
  }
  for (std::int64_t i = 0; i < p.elements(); ++i) add_term(de, of_image(p, i), in["dy"][i]);
  return {{"de", std::move(de)}};
}

}  // namespace
}  // namespace ladder::add

LADDER_REFERENCE(ladder::add::Residual, ladder::add::residual)
LADDER_REFERENCE(ladder::add::Embedding, ladder::add::embedding)
LADDER_REFERENCE(ladder::add::EmbeddingBackward, ladder::add::embedding_backward)
