// The reference of silu: the formulas of dev/silu/silu.h in double precision.
//
// Magnitudes. A kernel rounds -x log2(e) on its way to the exponential, so e^-x is wrong by |x| units of rounding and not
// by one: the terms count 1 + |x| times.
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "core/check/check.h"
#include "dev/silu/silu.h"

namespace ladder::silu {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// body(i) returns {value, magnitude}.
Expected map_elements(std::int64_t count, const auto& body) {
  Expected out{std::vector<double>(count), std::vector<double>(count)};
  for (std::int64_t i = 0; i < count; ++i) std::tie(out.value[i], out.magnitude[i]) = body(i);
  return out;
}

NamedOutputs forward(const Case& c, const HostTensors& in) {
  const std::vector<float>& x = in["x"];
  return {{"y", map_elements(problem_of<Forward>(c).elements(), [&](std::int64_t i) {
             const double y = x[i] * sigmoid(x[i]);
             return std::pair(y, std::abs(y) * (1 + std::abs(x[i])));
           })}};
}

NamedOutputs backward(const Case& c, const HostTensors& in) {
  const std::vector<float>& x = in["x"];
  const std::vector<float>& dy = in["dy"];
  return {{"dx", map_elements(problem_of<Backward>(c).elements(), [&](std::int64_t i) {
             const double s = sigmoid(x[i]);
             const double bend = x[i] * s * (1 - s);
             return std::pair(dy[i] * (s + bend), std::abs(dy[i]) * (s + std::abs(bend)) * (1 + std::abs(x[i])));
           })}};
}

// Beyond all numbers the sigmoid is 1. Below them x s(x) is no number, nor is the gradient at either end.
void add_infinities(const Case&, HostTensors& inputs) {
  constexpr std::size_t kStep = 61;
  for (std::size_t i = kStep / 2; i < inputs["x"].size(); i += kStep) {
    inputs["x"][i] = std::numeric_limits<float>::infinity();
  }
}

}  // namespace
}  // namespace ladder::silu

LADDER_REFERENCE(ladder::silu::Forward, ladder::silu::forward)
LADDER_OUTLIERS(ladder::silu::Forward, {.add_infinities = ladder::silu::add_infinities})
LADDER_REFERENCE(ladder::silu::Backward, ladder::silu::backward)
