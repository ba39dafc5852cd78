// The reference of gemm: the formulas of dev/gemm/gemm.h in double precision. A product of two fp32 numbers is exact in
// double, so the only rounding is that of the sum, 2^29 times finer than fp32's.
#include <algorithm>
#include <cmath>
#include <string>

#include "core/check/check.h"
#include "core/parallel.h"
#include "dev/gemm/gemm.h"

namespace ladder::gemm {
namespace {

Expected zeros(std::size_t count) {
  return {.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
}

// out[row][col] += sum over i of a(row, i) * b[i][col], b having `cols` elements a row. Sums of kCols columns stay in registers,
// and the panel of b that they need in a cache.
void multiply(Expected& out, std::int64_t rows, std::int64_t terms, std::int64_t cols, const auto& a, const auto& b) {
  constexpr std::int64_t kCols = 8, kTerms = 1024;
  const std::int64_t col_blocks = (cols + kCols - 1) / kCols;
  parallel_for(rows, 1, [&](std::int64_t row0, std::int64_t row1) {
    double panel[kTerms * kCols] = {};
    for (std::int64_t block = 0; block < col_blocks * (terms + kTerms - 1) / kTerms; ++block) {
      const std::int64_t col0 = block % col_blocks * kCols;
      const std::int64_t term0 = block / col_blocks * kTerms;
      const std::int64_t num_cols = std::min(kCols, cols - col0);
      const std::int64_t num_terms = std::min(kTerms, terms - term0);
      for (std::int64_t i = 0; i < num_terms; ++i) {
        for (std::int64_t col = 0; col < num_cols; ++col) panel[i * kCols + col] = b[(term0 + i) * cols + col0 + col];
      }
      for (std::int64_t row = row0; row < row1; ++row) {
        double value[kCols] = {}, magnitude[kCols] = {};
        for (std::int64_t i = 0; i < num_terms; ++i) {
          const double factor = a(row, term0 + i);
          for (std::int64_t col = 0; col < kCols; ++col) {
            const double term = factor * panel[i * kCols + col];
            value[col] += term;
            magnitude[col] += std::abs(term);
          }
        }
        for (std::int64_t col = 0; col < num_cols; ++col) {
          out.value[row * cols + col0 + col] += value[col];
          out.magnitude[row * cols + col0 + col] += magnitude[col];
        }
      }
    }
  });
}

// y = z / (1 + e^-z). An error of z reaches y times the derivative; that of the exponential and the division is relative
// to y, and grows with z, to which the exponent is rounded. What is below 2^-110 may be zero: e^-z overflows.
void apply_silu(double& value, double& magnitude) {
  const double z = value;
  const double sigmoid = 1 / (1 + std::exp(-z));
  const double derivative = sigmoid + z * sigmoid * (1 - sigmoid);
  value = z * sigmoid;
  magnitude = std::abs(derivative) * magnitude + (std::abs(z) + 4) * std::abs(value) + 0x1p-90;
}

// x [m, k], of the layer whose tensors' names end so.
std::vector<float> whole_x(const Problem& p, const HostTensors& in, const std::string& number = "") {
  if (p.split == 0) return in["x" + number];
  std::vector<float> x;
  const auto append = [&x](const std::vector<float>& part, std::ptrdiff_t row, int cols) {
    x.insert(x.end(), part.begin() + row * cols, part.begin() + (row + 1) * cols);
  };
  for (int m = 0; m < p.m; ++m) {
    append(in["x" + number], m, p.split);
    append(in["x_rest" + number], m, p.k - p.split);
  }
  return x;
}

NamedOutputs fprop(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Fprop>(c);
  const std::vector<float> x = whole_x(p, in);
  const std::vector<float>& w = in["w"];
  const std::vector<float>* bias = in.find("bias");
  const std::vector<float>* r = in.find("r");
  Expected y = zeros(std::size_t(p.m) * p.n);
  for (std::size_t i = 0; i < y.value.size(); ++i) {
    const double added = bias ? (*bias)[i % p.n] : 0;
    const double residual = r ? (*r)[i] : 0;
    y.value[i] = added + residual;
    y.magnitude[i] = std::abs(added) + std::abs(residual);
  }
  std::vector<double> transposed(w.size());  // [k][n]
  for (std::size_t n = 0; n < std::size_t(p.n); ++n) {
    for (std::size_t k = 0; k < std::size_t(p.k); ++k) transposed[k * p.n + n] = w[n * p.k + k];
  }
  multiply(
      y, p.m, p.k, p.n, [&](std::int64_t m, std::int64_t k) { return x[m * p.k + k]; }, transposed);
  for (std::size_t i = 0; p.silu && i < y.value.size(); ++i) apply_silu(y.value[i], y.magnitude[i]);
  NamedOutputs outputs;
  outputs["y"] = std::move(y);
  return outputs;
}

NamedOutputs dgrad(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Dgrad>(c);
  const std::vector<float>& dy = in["dy"];
  const std::vector<float>* r = in.find("r");
  Expected dx = zeros(std::size_t(p.m) * p.k);
  for (std::size_t i = 0; r && i < dx.value.size(); ++i) {
    dx.value[i] = (*r)[i];
    dx.magnitude[i] = std::abs(dx.value[i]);
  }
  multiply(
      dx, p.m, p.n, p.k, [&](std::int64_t m, std::int64_t n) { return dy[m * p.n + n]; }, in["w"]);
  NamedOutputs outputs;
  if (p.split == 0) {
    outputs["dx"] = std::move(dx);
    return outputs;
  }
  const auto part = [&](int from, int to) {
    Expected columns = zeros(std::size_t(p.m) * (to - from));
    std::size_t at = 0;
    for (std::size_t m = 0; m < std::size_t(p.m); ++m) {
      for (int k = from; k < to; ++k, ++at) {
        columns.value[at] = dx.value[m * p.k + k];
        columns.magnitude[at] = dx.magnitude[m * p.k + k];
      }
    }
    return columns;
  };
  outputs["dx"] = part(0, p.split);
  outputs["dx_rest"] = part(p.split, p.k);
  return outputs;
}

// Of the layer whose tensors' names end so.
void add_wgrad(NamedOutputs& outputs, const Problem& p, const HostTensors& in, const std::string& number) {
  const std::vector<float>& dy = in["dy" + number];
  const auto of_dy = [&](std::int64_t n, std::int64_t m) { return dy[m * p.n + n]; };
  Expected dw = zeros(std::size_t(p.n) * p.k);
  multiply(dw, p.n, p.m, p.k, of_dy, whole_x(p, in, number));
  outputs["dw" + number] = std::move(dw);
  if (p.bias) {
    Expected dbias = zeros(p.n);
    multiply(dbias, p.n, p.m, 1, of_dy, std::vector<double>(p.m, 1.0));
    dbias.discriminating = p.m > 1;  // of a single row it is dy itself
    outputs["dbias" + number] = std::move(dbias);
  }
}

NamedOutputs wgrad(const Case& c, const HostTensors& in) {
  NamedOutputs outputs;
  add_wgrad(outputs, problem_of<Wgrad>(c), in, "");
  return outputs;
}

NamedOutputs wgrad_batch(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<WgradBatch>(c);
  NamedOutputs outputs;
  for (int i = 0; i < p.batch; ++i) add_wgrad(outputs, p, in, std::to_string(i));
  return outputs;
}

}  // namespace
}  // namespace ladder::gemm

LADDER_REFERENCE(ladder::gemm::Fprop, ladder::gemm::fprop)
LADDER_REFERENCE(ladder::gemm::Dgrad, ladder::gemm::dgrad)
LADDER_REFERENCE(ladder::gemm::Wgrad, ladder::gemm::wgrad)
LADDER_REFERENCE(ladder::gemm::WgradBatch, ladder::gemm::wgrad_batch)
