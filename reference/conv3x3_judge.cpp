// The judge of conv3x3: the formula of dev/conv3x3/conv3x3.h in double precision. A product of two fp32 numbers is
// exact in double, so the only rounding is that of the sum, 2^29 times finer than fp32's.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/parallel.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {
namespace {

// Weights as [r][s][c][k]: the innermost loop runs over output channels, which are contiguous in y as well.
std::vector<double> channels_last(const Problem& p, const std::vector<float>& w) {
  std::vector<double> rsck(w.size());
  for (int k = 0; k < p.k; ++k) {
    for (int tap = 0; tap < 9; ++tap) {
      for (int c = 0; c < p.c; ++c) {
        const std::int64_t from = (std::int64_t{k} * 9 + tap) * p.c + c;
        const std::int64_t to = (std::int64_t{tap} * p.c + c) * p.k + k;
        rsck[to] = w[from];
      }
    }
  }
  return rsck;
}

void add_terms(double x, const double* w, int k, double* value, double* magnitude) {
  for (int i = 0; i < k; ++i) {
    const double term = x * w[i];
    value[i] += term;
    magnitude[i] += std::abs(term);
  }
}

References fprop(const Case& c, const HostTensors& inputs) {
  const auto& p = detail::problem_of<Fprop>(c);
  const std::vector<float>& x = inputs.values[0];
  const std::vector<double> w = channels_last(p, inputs.values[1]);
  Reference y{.value = std::vector<double>(p.pixels() * p.k), .magnitude = std::vector<double>(p.pixels() * p.k)};

  parallel_for(std::int64_t{p.n} * p.h, 1, [&](std::int64_t first_row, std::int64_t last_row) {
    for (std::int64_t row = first_row; row < last_row; ++row) {
      for (int q = 0; q < p.w; ++q) {
        const std::int64_t at = (row * p.w + q) * p.k;
        double* value = &y.value[at];
        double* magnitude = &y.magnitude[at];
        for (int k = 0; p.bias && k < p.k; ++k) {
          value[k] = inputs.values[2][k];
          magnitude[k] = std::abs(value[k]);
        }
        const auto row_in_image = static_cast<int>(row % p.h);
        for (int r = std::max(0, 1 - row_in_image); r < 3 && row_in_image + r - 1 < p.h; ++r) {
          for (int s = std::max(0, 1 - q); s < 3 && q + s - 1 < p.w; ++s) {
            const float* x_tap = &x[((row + r - 1) * p.w + q + s - 1) * p.c];
            const double* w_tap = &w[std::int64_t{r * 3 + s} * p.c * p.k];
            for (int ch = 0; ch < p.c; ++ch, w_tap += p.k) add_terms(x_tap[ch], w_tap, p.k, value, magnitude);
          }
        }
      }
    }
  });
  return {std::move(y)};
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_JUDGE(ladder::conv3x3::Fprop, ladder::conv3x3::fprop)
