// The reference of embedding: the formula of dev/embedding/embedding.h, its exponent in fp32 as the formula has it, all
// else in double precision.
//
// Magnitudes. Frequency and angle are rounded to fp32, and the exponential is right to two units in the last place: an
// angle is wrong by at most 3 of its own units of rounding, and so is cosine or sine. Hence the angle counts.
#include <cmath>

#include "core/check/check.h"
#include "dev/embedding/embedding.h"

namespace ladder::embedding {
namespace {

NamedOutputs timestep(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Timestep>(c);
  const int half = p.half();
  Expected y{std::vector<double>(p.elements()), std::vector<double>(p.elements())};
  for (std::int64_t n = 0; n < p.n; ++n) {
    for (int j = 0; j < half; ++j) {
      const float product = static_cast<float>(-std::log(10000.0)) * static_cast<float>(j);
      const float exponent = product / static_cast<float>(half);
      const double angle = in["t"][n] * std::exp(static_cast<double>(exponent));
      const std::int64_t i = n * p.c + j;
      y.value[i] = std::cos(angle);
      y.value[i + half] = std::sin(angle);
      y.magnitude[i] = y.magnitude[i + half] = 1 + std::abs(angle);
    }
  }
  return {{"y", std::move(y)}};
}

}  // namespace
}  // namespace ladder::embedding

LADDER_REFERENCE(ladder::embedding::Timestep, ladder::embedding::timestep)
