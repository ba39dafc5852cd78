// The reference of conv1d: the formulas of dev/conv1d/conv1d.h in double precision.
//
// Magnitudes. A sum's magnitude is the sum of its terms' absolute values. A block's normalised value xhat has three
// errors: that of its own convolution value h; that of the mean, at most the mean of the group's magnitudes; and the
// relative error of the standard deviation, the root mean square of the group's magnitudes. gamma and FiLM's scale
// multiply them.
#include <algorithm>
#include <cmath>

#include "core/check/check.h"
#include "core/parallel.h"
#include "dev/conv1d/conv1d.h"
#include "reference/activation.h"

namespace ladder::conv1d {
namespace {

Expected of_size(std::int64_t count) {
  return {.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
}

// x [n, l, c].
std::vector<float> whole_x(const Problem& p, const HostTensors& in) {
  const std::vector<float>* x_rest = in.find("x_rest");
  if (!x_rest) return in["x"];
  std::vector<float> x;
  for (std::int64_t row = 0; row < std::int64_t{p.n} * p.l; ++row) {
    const auto append = [&](const std::vector<float>& part, std::int64_t channels) {
      x.insert(x.end(), part.begin() + row * channels, part.begin() + (row + 1) * channels);
    };
    append(in["x"], p.split);
    append(*x_rest, p.c - p.split);
  }
  return x;
}

// conv + bias [n, out_l, k].
Expected convolve(const Problem& p, const std::vector<float>& x, const std::vector<float>& w,
                  const std::vector<float>* bias) {
  Expected h = of_size(std::int64_t{p.n} * p.out_l() * p.k);
  parallel_for(std::ssize(h.value), 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t k = i % p.k;
      const int o = static_cast<int>(i / p.k % p.out_l());
      const std::int64_t n = i / p.k / p.out_l();
      double sum = bias ? (*bias)[k] : 0;
      double magnitude = std::abs(sum);
      for (int j = 0; j < p.terms(); ++j) {
        const int from = p.from(o, j);
        if (from < 0 || from >= p.l) continue;
        const float* const x_row = &x[(n * p.l + from) * p.c];
        const float* const w_row = &w[(k * p.taps + p.tap(o, j)) * p.c];
        for (int c = 0; c < p.c; ++c) {
          const double term = double{x_row[c]} * w_row[c];
          sum += term;
          magnitude += std::abs(term);
        }
      }
      h.value[i] = sum;
      h.magnitude[i] = magnitude;
    }
  });
  return h;
}

void add(const std::vector<float>* addend, Expected& y) {
  for (std::int64_t i = 0; addend && i < std::ssize(y.value); ++i) {
    y.value[i] += (*addend)[i];
    y.magnitude[i] += std::abs((*addend)[i]);
  }
}

NamedOutputs fprop(const Case& c, const HostTensors& in) {
  Expected y = convolve(problem_of<Fprop>(c), in["x"], in["w"], in.find("bias"));
  add(in.find("residual"), y);
  return {{"y", std::move(y)}};
}

// Statistics of the convolution's values and of their magnitudes, for one sample and group.
struct Statistics {
  double mean = 0;
  double rstd = 0;
  double mean_magnitude = 0;
  double root_magnitude = 0;  // root mean square of the magnitudes
};

Statistics statistics(const Problem& p, const Expected& h, std::int64_t n, std::int64_t group) {
  Statistics s;
  const auto mean_of = [&](const auto& term) {
    double sum = 0;
    for (std::int64_t o = 0; o < p.out_l(); ++o) {
      const std::int64_t first = (n * p.out_l() + o) * p.k + group * p.group_channels();
      for (std::int64_t i = first; i < first + p.group_channels(); ++i) sum += term(i);
    }
    return sum / (double(p.out_l()) * p.group_channels());
  };
  s.mean = mean_of([&](std::int64_t i) { return h.value[i]; });
  const double squares = mean_of([&](std::int64_t i) { return (h.value[i] - s.mean) * (h.value[i] - s.mean); });
  s.rstd = 1 / std::sqrt(squares + double{kEpsilon});
  s.mean_magnitude = mean_of([&](std::int64_t i) { return h.magnitude[i]; });
  const double square_magnitudes = mean_of([&](std::int64_t i) { return h.magnitude[i] * h.magnitude[i]; });
  s.root_magnitude = std::sqrt(square_magnitudes);
  return s;
}

NamedOutputs block(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Block>(c);
  const Expected h = convolve(p, whole_x(p, in), in["w"], &in["bias"]);
  const std::vector<float>& gamma = in["gamma"];
  const std::vector<float>& beta = in["beta"];
  const Activation activation = p.mish ? Activation::mish : Activation::identity;
  Expected y = of_size(std::ssize(h.value));
  const auto element = [&](std::int64_t n, std::int64_t i, const Statistics& s) {
    const std::int64_t k = i % p.k;
    const double xhat = (h.value[i] - s.mean) * s.rstd;
    const double error = s.rstd * (h.magnitude[i] + s.mean_magnitude + std::abs(xhat) * s.root_magnitude);
    const double z = gamma[k] * xhat + beta[k];
    double value = reference::value(activation, z);
    double magnitude = std::abs(gamma[k]) * (error + std::abs(xhat)) + std::abs(beta[k]);
    // A row of film is [scale (k, only with p.film)][shift (k)].
    const auto film = [&](std::int64_t j) { return double{in["film_step"][j]} + in["film"][n * p.pitch + j]; };
    const auto parts = [&](std::int64_t j) {
      return std::abs(double{in["film_step"][j]}) + std::abs(double{in["film"][n * p.pitch + j]});
    };
    if (p.film) {
      magnitude = std::abs(film(k)) * magnitude + parts(k) * std::abs(value);
      value *= film(k);
    }
    if (p.film_width() > 0) {
      value += film(p.film_width() - p.k + k);
      magnitude += parts(p.film_width() - p.k + k);
    }
    y.value[i] = value;
    y.magnitude[i] = magnitude;
  };
  parallel_for(std::int64_t{p.n} * p.g, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      const Statistics s = statistics(p, h, group / p.g, group % p.g);
      for (std::int64_t o = 0; o < p.out_l(); ++o) {
        const std::int64_t first = (group / p.g * p.out_l() + o) * p.k + group % p.g * p.group_channels();
        for (std::int64_t i = first; i < first + p.group_channels(); ++i) element(group / p.g, i, s);
      }
    }
  });
  add(in.find("residual"), y);
  // A group of one element equals its mean, so that xhat is 0.
  y.discriminating = p.group_channels() * p.out_l() > 1;
  return {{"y", std::move(y)}};
}

}  // namespace
}  // namespace ladder::conv1d

// The block normalises: see reference/groupnorm_reference.cpp.
LADDER_OUTLIERS(ladder::conv1d::Block, {.largest = ladder::kLeastOutlier})
LADDER_REFERENCE(ladder::conv1d::Fprop, ladder::conv1d::fprop)
LADDER_REFERENCE(ladder::conv1d::Block, ladder::conv1d::block)
