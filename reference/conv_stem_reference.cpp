// The reference of conv_stem: the formulas of dev/conv_stem/conv_stem.h in double precision.
//
// Magnitudes: the sum of the absolute values of a sum's terms; of a maximum the largest of its values', as the maximum of
// values that are each within a bound is within the largest of the bounds.
#include <algorithm>
#include <cmath>

#include "core/check/check.h"
#include "core/parallel.h"
#include "dev/conv_stem/conv_stem.h"

namespace ladder::conv_stem {
namespace {

// w as [r][r][c][k]: the innermost loop runs over output channels.
std::vector<double> channels_last(const Problem& p, const std::vector<float>& w) {
  std::vector<double> turned(w.size());
  for (std::int64_t k = 0; k < p.k; ++k) {
    for (std::int64_t i = 0; i < p.filter(); ++i) turned[i * p.k + k] = w[k * p.filter() + i];
  }
  return turned;
}

void add_terms(double factor, const double* w, int count, double* value, double* magnitude) {
  for (int k = 0; k < count; ++k) {
    const double term = factor * w[k];
    value[k] += term;
    magnitude[k] += std::abs(term);
  }
}

// One pixel of the convolution's output: p.k values and magnitudes, which hold the bias.
void add_pixel(const Problem& p, const std::vector<float>& x, const std::vector<double>& w, std::int64_t n, int row,
               int col, double* value, double* magnitude) {
  for (int i = 0; i < p.r; ++i) {
    const int x_row = row * p.stride + i - p.pad;
    if (x_row < 0 || x_row >= p.h) continue;
    for (int j = 0; j < p.r; ++j) {
      const int x_col = col * p.stride + j - p.pad;
      if (x_col < 0 || x_col >= p.w) continue;
      for (int c = 0; c < p.c; ++c) {
        add_terms(x[((n * p.h + x_row) * p.w + x_col) * p.c + c], &w[std::int64_t{(i * p.r + j) * p.c + c} * p.k], p.k,
                  value, magnitude);
      }
    }
  }
}

Expected convolve(const Problem& p, const HostTensors& in) {
  const std::vector<double> w = channels_last(p, in["w"]);
  const std::vector<float>* bias = in.find("bias");
  const std::size_t count = std::size_t{1} * p.n * p.out_h() * p.out_w() * p.k;
  Expected y{.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
  parallel_for(std::int64_t{p.n} * p.out_h(), 1, [&](std::int64_t first_row, std::int64_t last_row) {
    for (std::int64_t row = first_row; row < last_row; ++row) {
      for (int col = 0; col < p.out_w(); ++col) {
        double* value = &y.value[(row * p.out_w() + col) * p.k];
        double* magnitude = &y.magnitude[(row * p.out_w() + col) * p.k];
        for (int k = 0; bias && k < p.k; ++k) {
          value[k] = (*bias)[k];
          magnitude[k] = std::abs(value[k]);
        }
        add_pixel(p, in["x"], w, row / p.out_h(), static_cast<int>(row % p.out_h()), col, value, magnitude);
      }
    }
  });
  return y;
}

NamedOutputs fprop(const Case& c, const HostTensors& in) { return {{"y", convolve(problem_of<Fprop>(c), in)}}; }

NamedOutputs relu_pool(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<ReluPool>(c);
  const Expected conv = convolve(p, in);
  const std::size_t count = std::size_t{1} * p.n * p.pool_h() * p.pool_w() * p.k;
  Expected y{.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
  parallel_for(std::int64_t{p.n} * p.pool_h(), 1, [&](std::int64_t first_row, std::int64_t last_row) {
    for (std::int64_t row = first_row; row < last_row; ++row) {
      const std::int64_t conv_row = row / p.pool_h() * p.out_h() + row % p.pool_h() * 2;
      for (std::int64_t i = 0; i < std::int64_t{p.pool_w()} * p.k; ++i) {
        double& value = y.value[row * p.pool_w() * p.k + i];
        double& magnitude = y.magnitude[row * p.pool_w() * p.k + i];
        for (int tap = 0; tap < 9; ++tap) {
          const std::int64_t pixel = (conv_row + tap / 3) * p.out_w() + i / p.k * 2 + tap % 3;
          const double sum = conv.value[pixel * p.k + i % p.k];
          if (sum > value || std::isnan(sum)) value = sum;  // a NaN stays: no comparison with it is true
          magnitude = std::max(magnitude, conv.magnitude[pixel * p.k + i % p.k]);
        }
      }
    }
  });
  return {{"y", std::move(y)}};
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_REFERENCE(ladder::conv_stem::Fprop, ladder::conv_stem::fprop)
LADDER_REFERENCE(ladder::conv_stem::ReluPool, ladder::conv_stem::relu_pool)
