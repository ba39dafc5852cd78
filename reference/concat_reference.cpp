// The reference of concat: the formulas of dev/concat/concat.h in double precision.
#include <cmath>

#include "core/check/check.h"
#include "dev/concat/concat.h"

namespace ladder::concat {
namespace {

Expected zeros(std::int64_t count) { return {std::vector<double>(count), std::vector<double>(count)}; }

void set(Expected& out, std::int64_t index, double value, double magnitude) {
  out.value[index] = value;
  out.magnitude[index] = magnitude;
}

NamedOutputs join(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Join>(c);
  const std::vector<float>& a = in["a"];
  const std::vector<float>& b = in["b"];
  Expected y = zeros(p.elements());
  for (std::int64_t pixel = 0, to = 0; pixel < p.pixels(); ++pixel) {
    for (std::int64_t i = 0; i < p.c + p.k; ++i, ++to) {
      const double value = i < p.c ? a[pixel * p.c + i] : b[pixel * p.k + i - p.c];
      set(y, to, value, std::abs(value));
    }
  }
  return {{"y", std::move(y)}};
}

}  // namespace
}  // namespace ladder::concat

LADDER_REFERENCE(ladder::concat::Join, ladder::concat::join)
