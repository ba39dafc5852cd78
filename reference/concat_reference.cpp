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

// `e` may be null.
NamedOutputs split(const Problem& p, const std::vector<float>& dy, const std::vector<float>* e) {
  Expected da = zeros(p.pixels() * p.c);
  Expected db = zeros(p.pixels() * p.k);
  for (std::int64_t pixel = 0; pixel < p.pixels(); ++pixel) {
    const float* const row = &dy[pixel * (p.c + p.k)];
    for (std::int64_t i = 0; i < p.c; ++i) set(da, pixel * p.c + i, row[i], std::abs(row[i]));
    for (std::int64_t j = 0; j < p.k; ++j) {
      const double value = row[p.c + j];
      const double other = e ? (*e)[pixel * p.k + j] : 0;
      set(db, pixel * p.k + j, value + other, std::abs(value) + std::abs(other));
    }
  }
  NamedOutputs outputs;
  outputs["da"] = std::move(da);
  outputs["db"] = std::move(db);
  return outputs;
}

NamedOutputs split_alone(const Case& c, const HostTensors& in) {
  return split(problem_of<Split>(c), in["dy"], nullptr);
}

NamedOutputs split_add(const Case& c, const HostTensors& in) {
  return split(problem_of<SplitAdd>(c), in["dy"], &in["e"]);
}

}  // namespace
}  // namespace ladder::concat

LADDER_REFERENCE(ladder::concat::Join, ladder::concat::join)
LADDER_REFERENCE(ladder::concat::Split, ladder::concat::split_alone)
LADDER_REFERENCE(ladder::concat::SplitAdd, ladder::concat::split_add)
