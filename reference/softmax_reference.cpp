// The reference of softmax: the formulas of dev/softmax/softmax.h in double precision.
//
// Magnitudes. An exponential multiplies the relative rounding error of its argument x - max by |x - max|. y has this
// error twice: from its own exponential, and from the sum as the mean of |x - max| weighted by y. The gradient's terms
// are y dy and y times the terms of the row's sum.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check/check.h"
#include "core/parallel.h"
#include "dev/softmax/softmax.h"

namespace ladder::softmax {
namespace {

// Compute the output `name` row by row: body(first element, one past the last, out) fills a row.
NamedOutputs of_rows(const char* name, const Problem& p, const auto& body) {
  const auto count = static_cast<std::size_t>(p.elements());
  Expected out{.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
  parallel_for(p.m, 1 + (1 << 14) / p.n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row * p.n, (row + 1) * p.n, out);
  });
  // A row of one column has y = 1 and dx = 0.
  out.discriminating = p.n > 1;
  return {{name, std::move(out)}};
}

NamedOutputs forward(const Case& c, const HostTensors& inputs) {
  const std::vector<float>& x = inputs["x"];
  return of_rows("y", problem_of<Forward>(c), [&](std::int64_t first, std::int64_t end, Expected& y) {
    const double max = *std::max_element(x.begin() + first, x.begin() + end);
    double sum = 0;
    double distances = 0;
    for (std::int64_t i = first; i < end; ++i) {
      y.value[i] = std::exp(x[i] - max);
      sum += y.value[i];
      if (y.value[i] > 0) distances += y.value[i] * (max - x[i]);
    }
    for (std::int64_t i = first; i < end; ++i) {
      y.value[i] /= sum;
      y.magnitude[i] = y.value[i] > 0 ? y.value[i] * (1 + max - x[i] + distances / sum) : 0;
    }
  });
}

NamedOutputs backward(const Case& c, const HostTensors& inputs) {
  const std::vector<float>& y = inputs["y"];
  const std::vector<float>& dy = inputs["dy"];
  return of_rows("dx", problem_of<Backward>(c), [&](std::int64_t first, std::int64_t end, Expected& dx) {
    double sum = 0;
    double terms = 0;
    for (std::int64_t i = first; i < end; ++i) {
      const double term = double{y[i]} * dy[i];
      sum += term;
      terms += std::abs(term);
    }
    for (std::int64_t i = first; i < end; ++i) {
      dx.value[i] = y[i] * (dy[i] - sum);
      dx.magnitude[i] = std::abs(y[i]) * (std::abs(dy[i]) + terms);
    }
  });
}

// Mask the last third of even rows, like a causal mask, and the first third of odd rows, like padding on the left.
void mask(const Case& c, HostTensors& inputs) {
  const Problem& p = problem_of<Forward>(c);
  for (std::int64_t row = 0; row < p.m; ++row) {
    const auto first = inputs["x"].begin() + row * p.n + (row % 2 == 0 ? p.n - p.n / 3 : 0);
    std::fill_n(first, p.n / 3, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace
}  // namespace ladder::softmax

LADDER_REFERENCE(ladder::softmax::Forward, ladder::softmax::forward)
LADDER_OUTLIERS(ladder::softmax::Forward, {.add_infinities = ladder::softmax::mask})
LADDER_REFERENCE(ladder::softmax::Backward, ladder::softmax::backward)
