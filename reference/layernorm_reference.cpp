// The reference of layernorm: the formulas of dev/layernorm/layernorm.h in double precision.
//
// Magnitudes. A kernel computes each output in fp32 from statistics that are themselves sums, so its error is not that
// of one sum of terms. compare() allows about sqrt(K) 2^-21 of the magnitude, which is meant for the longest of these
// sums.
#include <cmath>

#include "core/check/check.h"
#include "core/parallel.h"
#include "dev/layernorm/layernorm.h"

namespace ladder::layernorm {
namespace {

Expected of_size(std::int64_t count) {
  return {.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
}

// Call body(i) for every i below count, from several threads.
void for_each(std::int64_t count, std::int64_t chunk, const auto& body) {
  parallel_for(count, chunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

NamedOutputs forward(const Case& c, const HostTensors& inputs) {
  const auto& p = problem_of<Forward>(c);
  const std::vector<float>& x = inputs["x"];
  const std::vector<float>& gamma = inputs["gamma"];
  const std::vector<float>& beta = inputs["beta"];
  const Statistics s = statistics(p, x);

  Expected mean{.value = s.mean, .magnitude = std::vector<double>(p.m)};
  // The variance has the relative error of a sum of positive terms, and 1 / sqrt(variance) half of it.
  Expected rstd{.value = s.rstd, .magnitude = s.rstd};
  Expected y = of_size(p.elements());
  for_each(p.m, 1, [&](std::int64_t row) {
    for (std::int64_t column = 0; column < p.n; ++column) {
      const std::int64_t i = row * p.n + column;
      const double xhat = (x[i] - s.mean[row]) * s.rstd[row];
      y.value[i] = gamma[column] * xhat + beta[column];
      // The mean's error is a rounding error of the mean of |x - pivot|, the pivot an element of the row: about two
      // deviations.
      y.magnitude[i] = std::abs(gamma[column]) * (std::abs(xhat) + 2) + std::abs(beta[column]);
      mean.magnitude[row] += std::abs(x[i]) / static_cast<double>(p.n);
    }
  });

  // A kernel may take the mean about a pivot, an element of the row about two deviations from the mean.
  double means = 0;
  double deviations = 0;
  for (int row = 0; row < p.m; ++row) {
    means += s.mean[row] * s.mean[row];
    deviations += 1 / (s.rstd[row] * s.rstd[row]);
  }
  mean.condition = 1 + 2 * std::sqrt(deviations / means);

  // A large mean may make the rows' means differ by less than the error bound.
  const double spread = c.tensor("x").stddev / std::sqrt(static_cast<double>(p.n));
  mean.discriminating = error_bound(c.tensor("mean"), 0, p.mean) < spread / 4;

  // A row of one element equals its mean and normalises to zero.
  if (p.n == 1) mean.discriminating = rstd.discriminating = y.discriminating = false;
  NamedOutputs outputs;
  outputs["y"] = std::move(y);
  outputs["mean"] = std::move(mean);
  outputs["rstd"] = std::move(rstd);
  return outputs;
}

NamedOutputs backward(const Case& c, const HostTensors& inputs) {
  const auto& p = problem_of<Backward>(c);
  const std::vector<float>& x = inputs["x"];
  const std::vector<float>& dy = inputs["dy"];
  const std::vector<float>& gamma = inputs["gamma"];
  const std::vector<float>& mean = inputs["mean"];
  const std::vector<float>& rstd = inputs["rstd"];
  const auto xhat = [&](std::int64_t row, std::int64_t i) { return (double(x[i]) - mean[row]) * rstd[row]; };

  Expected dx = of_size(p.elements());
  for_each(p.m, 1, [&](std::int64_t row) {
    double a = 0, b = 0, a_magnitude = 0, b_magnitude = 0;
    for (std::int64_t column = 0; column < p.n; ++column) {
      const std::int64_t i = row * p.n + column;
      const double term = double(gamma[column]) * dy[i];
      a += term, a_magnitude += std::abs(term);
      b += term * xhat(row, i), b_magnitude += std::abs(term * xhat(row, i));
    }
    for (std::int64_t column = 0; column < p.n; ++column) {
      const std::int64_t i = row * p.n + column;
      const double term = double(gamma[column]) * dy[i];
      dx.value[i] = rstd[row] * (term - (a + xhat(row, i) * b) / p.n);
      dx.magnitude[i] = rstd[row] * (std::abs(term) + (a_magnitude + std::abs(xhat(row, i)) * b_magnitude) / p.n);
    }
  });

  Expected dgamma = of_size(p.n);
  Expected dbeta = of_size(p.n);
  constexpr std::int64_t kColumns = 1024;  // columns of a thread at a time, which reads them row by row
  parallel_for(p.n, kColumns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      for (std::int64_t column = begin; column < end; ++column) {
        const std::int64_t i = row * p.n + column;
        const double term = dy[i] * xhat(row, i);
        dgamma.value[column] += term, dgamma.magnitude[column] += std::abs(term);
        dbeta.value[column] += dy[i], dbeta.magnitude[column] += std::abs(dy[i]);
      }
    }
  });

  // Normalised, a row of one element does not depend on x, and a row of two only through epsilon.
  dx.discriminating = p.n > 2;
  dgamma.discriminating = p.n > 1;
  // A single row's dbeta is a copy of dy.
  dbeta.discriminating = p.m > 1;
  NamedOutputs outputs;
  outputs["dx"] = std::move(dx);
  outputs["dgamma"] = std::move(dgamma);
  outputs["dbeta"] = std::move(dbeta);
  return outputs;
}

}  // namespace
}  // namespace ladder::layernorm

// Smallest outliers only. A mean taken about an element of the row, and a variance about that mean, are as exact as the
// element is near the mean: at most 30 standard deviations of the ordinary elements, which is four of the row's.
LADDER_OUTLIERS(ladder::layernorm::Forward, {.largest = ladder::kLeastOutlier})
LADDER_OUTLIERS(ladder::layernorm::Backward, {.largest = ladder::kLeastOutlier})
LADDER_REFERENCE(ladder::layernorm::Forward, ladder::layernorm::forward)
LADDER_REFERENCE(ladder::layernorm::Backward, ladder::layernorm::backward)
