// The reference of groupnorm: the formulas of dev/groupnorm/groupnorm.h in double precision.
//
// Magnitudes. A kernel computes each output in fp32 from statistics that are themselves sums, so its error is not that
// of one sum of terms. compare() allows about sqrt(K) 2^-21 of the magnitude, which is meant for the longest of these
// sums.
#include <algorithm>
#include <cmath>

#include "core/check/check.h"
#include "core/parallel.h"
#include "dev/groupnorm/groupnorm.h"
#include "reference/activation.h"

namespace ladder::groupnorm {
namespace {

// Map of an element of x [n, h, w, c] to its group, gamma and beta.
class Elements {
 public:
  // gamma and beta may be null.
  Elements(const Problem& p, const std::vector<float>* gamma, const std::vector<float>* beta)
      : p_(p), gamma_(gamma), beta_(beta) {}

  std::int64_t group(std::int64_t element) const {
    const std::int64_t image = element / p_.c / p_.pixels();
    return image * p_.g + element % p_.c / p_.channels_per_group();
  }
  double gamma(std::int64_t element) const { return gamma_ ? (*gamma_)[element % p_.c] : 1; }
  double beta(std::int64_t element) const { return beta_ ? (*beta_)[element % p_.c] : 0; }

  // Call body(element) for all elements, from several threads. One thread has all elements of a channel and of a group.
  void for_each(const auto& body) const {
    parallel_for(p_.g, 1, [&](std::int64_t first_group, std::int64_t last_group) {
      const std::int64_t first_channel = first_group * p_.channels_per_group();
      const std::int64_t last_channel = last_group * p_.channels_per_group();
      for (std::int64_t pixel = 0; pixel < std::int64_t{p_.n} * p_.pixels(); ++pixel) {
        for (std::int64_t c = first_channel; c < last_channel; ++c) body(pixel * p_.c + c);
      }
    });
  }

 private:
  const Problem& p_;
  const std::vector<float>* gamma_;
  const std::vector<float>* beta_;
};

Expected of_size(std::int64_t count) {
  return {.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
}

NamedOutputs forward(const Case& c, const HostTensors& inputs) {
  const auto& p = problem_of<Forward>(c);
  const std::vector<float> x = whole_x(p, inputs);
  const Elements elements(p, inputs.find("gamma"), inputs.find("beta"));
  const Statistics s = statistics(p, x);
  const std::int64_t groups = std::ssize(s.mean);

  Expected mean{.value = s.mean, .magnitude = std::vector<double>(groups)};
  elements.for_each(
      [&](std::int64_t i) { mean.magnitude[elements.group(i)] += std::abs(x[i]) / double(p.group_size()); });
  // The variance has the relative error of a sum of positive terms, and 1 / sqrt(variance) half of it.
  Expected rstd{.value = s.rstd, .magnitude = s.rstd};

  Expected y = of_size(p.elements());
  elements.for_each([&](std::int64_t i) {
    const std::int64_t group = elements.group(i);
    const double xhat = (x[i] - s.mean[group]) * s.rstd[group];
    const double z = elements.gamma(i) * xhat + elements.beta(i);
    y.value[i] = reference::value(p.activation, z);
    // The mean's error is a rounding error of the mean of |x - pivot|, the pivot an element of the group: about two
    // deviations.
    y.magnitude[i] = std::abs(elements.gamma(i)) * (std::abs(xhat) + 2) + std::abs(elements.beta(i));
    // Demand an exact 0 where z is below 0 by more than its error bound.
    if (p.activation == Activation::relu && z < -error_bound(c.tensor("y"), 0, y.magnitude[i])) {
      y.magnitude[i] = 0;
    }
  });

  // A kernel may take the mean about a pivot, an element of the group about two deviations from the mean.
  double means = 0;
  double deviations = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    means += s.mean[group] * s.mean[group];
    deviations += 1 / (s.rstd[group] * s.rstd[group]);
  }
  mean.condition = 1 + 2 * std::sqrt(deviations / means);

  // A large mean may make the groups' means differ by less than the error bound.
  const double spread = c.tensor("x").stddev / std::sqrt(static_cast<double>(p.group_size()));
  mean.discriminating = error_bound(c.tensor("mean"), 0, p.mean) < spread / 4;

  // A group of one element equals its mean and normalises to zero.
  if (p.group_size() == 1) {
    mean.discriminating = false;
    rstd.discriminating = false;
    y.discriminating = p.affine && p.activation != Activation::identity;
  }
  NamedOutputs outputs;
  outputs["y"] = std::move(y);
  outputs["mean"] = std::move(mean);
  outputs["rstd"] = std::move(rstd);
  return outputs;
}

// Contribution of one element to the sums of the backward pass, and its error in fp32.
struct Terms {
  double xhat = 0;
  double dz = 0;
  double parts = 0;  // |dy| (|gamma xhat| + |beta|): rounding errors of the derivative scale with it
  double kink = 0;   // |dy| where fp32 may land on the other side of ReLU's kink, else 0

  // Magnitude of dz in a sum of `length` terms, where compare() allows an error of `allowed_error` per magnitude: 16 roundings
  // of the derivative on top of the sum's roundings.
  double magnitude(double length, double allowed_error) const {
    return std::abs(dz) + std::min(1.0, 4 / std::sqrt(length)) * parts + kink / allowed_error;
  }
};

// de [n, embedding] before the sums: zeros in the c columns from p.first on. Other columns keep the input, with
// magnitude 0.
Expected columns_to_add_to(const Problem& p, const HostTensors& inputs) {
  Expected de = of_size(std::int64_t{p.n} * p.embedding);
  if (p.embedding == p.c) return de;
  for (std::int64_t i = 0; i < std::ssize(de.value); ++i) {
    const std::int64_t column = i % p.embedding - p.first;
    if (column < 0 || column >= p.c) de.value[i] = inputs["de"][i];
  }
  return de;
}

NamedOutputs backward(const Case& c, const HostTensors& inputs) {
  const auto& p = problem_of<Backward>(c);
  const std::vector<float> x = whole_x(p, inputs);
  const std::vector<float>& dy = inputs["dy"];
  const std::vector<float>& mean = inputs["mean"];
  const std::vector<float>& rstd = inputs["rstd"];
  const Elements elements(p, inputs.find("gamma"), inputs.find("beta"));
  // The sums of dx have m terms; the sums of dgamma and dbeta run over all pixels of all images.
  const auto m = static_cast<double>(p.group_size());
  const auto pixels = static_cast<double>(p.n) * p.pixels();
  const double group_error = error_bound(c.tensor("dx"), 0, 1);
  const double channel_error = p.affine ? error_bound(c.tensor("dbeta"), 0, 1) : group_error;

  const auto terms = [&](std::int64_t i) {
    const std::int64_t group = elements.group(i);
    Terms t{.xhat = (double(x[i]) - mean[group]) * rstd[group]};
    const double scaled = elements.gamma(i) * t.xhat;
    const double z = scaled + elements.beta(i);
    t.dz = dy[i] * reference::derivative(p.activation, z);
    t.parts = std::abs(dy[i]) * (std::abs(scaled) + std::abs(elements.beta(i)));
    const bool at_kink = std::abs(z) <= 0x1p-20 * (std::abs(scaled) + std::abs(elements.beta(i)));
    if (p.activation == Activation::relu && at_kink) t.kink = std::abs(dy[i]);
    return t;
  };

  const std::int64_t groups = std::int64_t{p.n} * p.g;
  Expected sum_a = of_size(groups);
  Expected sum_b = of_size(groups);
  Expected dgamma = of_size(p.c);
  Expected dbeta = of_size(p.c);
  elements.for_each([&](std::int64_t i) {
    const Terms t = terms(i);
    const auto add = [](Expected& sum, std::int64_t to, double term, double magnitude) {
      sum.value[to] += term;
      sum.magnitude[to] += magnitude;
    };
    const double in_group = std::abs(elements.gamma(i)) * t.magnitude(m, group_error);
    add(sum_a, elements.group(i), elements.gamma(i) * t.dz, in_group);
    add(sum_b, elements.group(i), elements.gamma(i) * t.dz * t.xhat, std::abs(t.xhat) * in_group);
    const double in_channel = t.magnitude(pixels, channel_error);
    add(dbeta, i % p.c, t.dz, in_channel);
    add(dgamma, i % p.c, t.dz * t.xhat, std::abs(t.xhat) * in_channel);
  });

  const std::vector<float>* const addends[] = {inputs.find("addend"), inputs.find("addend2")};
  Expected dx = of_size(p.elements());
  Expected de = p.embedding == 0 ? Expected{} : columns_to_add_to(p, inputs);
  elements.for_each([&](std::int64_t i) {
    const std::int64_t group = elements.group(i);
    const Terms t = terms(i);
    dx.value[i] = rstd[group] * (elements.gamma(i) * t.dz - (sum_a.value[group] + t.xhat * sum_b.value[group]) / m);
    const double sums = sum_a.magnitude[group] + std::abs(t.xhat) * sum_b.magnitude[group];
    dx.magnitude[i] = rstd[group] * (std::abs(elements.gamma(i)) * t.magnitude(m, group_error) + sums / m);
    for (const std::vector<float>* addend : addends) {
      if (!addend) continue;
      dx.value[i] += (*addend)[i];
      dx.magnitude[i] += std::abs((*addend)[i]);
    }
    if (p.embedding == 0) return;
    const std::int64_t column = i / p.c / p.pixels() * p.embedding + p.first + i % p.c;
    de.value[column] += dx.value[i];
    de.magnitude[column] += dx.magnitude[i];
  });

  // Normalised, a group of one element does not depend on x, and a group of two only through epsilon.
  dx.discriminating = p.group_size() > 2;
  dgamma.discriminating = p.group_size() > 1;
  // The sum of dx over a whole group is zero.
  de.discriminating = dx.discriminating && p.channels_per_group() > 1;
  NamedOutputs outputs;
  outputs["dx"] = std::move(dx);
  if (p.embedding != 0) outputs["de"] = std::move(de);
  if (!p.affine) return outputs;
  outputs["dgamma"] = std::move(dgamma);
  outputs["dbeta"] = std::move(dbeta);
  return outputs;
}

}  // namespace
}  // namespace ladder::groupnorm

// Smallest outliers only. A mean taken about an element of the group, and a variance about that mean, are as exact as
// the element is near the mean: at most 30 standard deviations of the ordinary elements, which is four of the group's.
LADDER_OUTLIERS(ladder::groupnorm::Forward, {.largest = ladder::kLeastOutlier})
LADDER_OUTLIERS(ladder::groupnorm::Backward, {.largest = ladder::kLeastOutlier})
LADDER_REFERENCE(ladder::groupnorm::Forward, ladder::groupnorm::forward)
LADDER_REFERENCE(ladder::groupnorm::Backward, ladder::groupnorm::backward)
