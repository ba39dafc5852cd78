// The reference of gemm: the formulas of dev/gemm/gemm.h in double precision. A product of two fp32 numbers is exact in
// double, so the only rounding is that of the sum, 2^29 times finer than fp32's.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/check/check.h"
#include "core/parallel.h"
#include "dev/gemm/gemm.h"
#include "reference/activation.h"
#include "reference/products.h"

namespace ladder::gemm {
namespace {

Expected zeros(std::size_t count) {
  return {.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
}

using reference::add_products;
using reference::kBlockCols;
using reference::kBlockRows;
using reference::ProductBlock;

// out[row][col] += sum over i of a(row, i) * b[i][col], with b [terms, cols]. A thread copies kTerms x kCols of b at a
// time to a panel that stays in its cache.
void multiply(Expected& out, std::int64_t rows, std::int64_t terms, std::int64_t cols, const auto& a, const auto& b) {
  constexpr std::int64_t kCols = 32, kTerms = 512;
  const auto add_panel = [&](std::int64_t row0, std::int64_t row1, std::int64_t col0, std::int64_t term0,
                             std::vector<double>& panel, std::vector<double>& of_a) {
    const std::int64_t num_cols = std::min(kCols, cols - col0);
    const std::int64_t num_terms = std::min(kTerms, terms - term0);
    for (std::int64_t i = 0; i < num_terms; ++i) {
      for (std::int64_t col = 0; col < num_cols; ++col) panel[i * kCols + col] = b[(term0 + i) * cols + col0 + col];
    }
    for (std::int64_t row = row0; row < row1; row += kBlockRows) {
      const std::int64_t num_rows = std::min<std::int64_t>(kBlockRows, row1 - row);
      for (std::int64_t r = 0; r < num_rows; ++r) {
        for (std::int64_t i = 0; i < num_terms; ++i) of_a[r * kTerms + i] = a(row + r, term0 + i);
      }
      for (std::int64_t first = 0; first < num_cols; first += kBlockCols) {
        ProductBlock block;
        add_products(of_a.data(), kTerms, &panel[first], kCols, num_terms, block);
        for (std::int64_t r = 0; r < num_rows; ++r) {
          for (std::int64_t col = first; col < std::min<std::int64_t>(first + kBlockCols, num_cols); ++col) {
            out.value[(row + r) * cols + col0 + col] += block.value[r][col - first];
            out.magnitude[(row + r) * cols + col0 + col] += block.magnitude[r][col - first];
          }
        }
      }
    }
  };
  parallel_for(rows, kBlockRows, [&](std::int64_t row0, std::int64_t row1) {
    std::vector<double> panel(kTerms * kCols), of_a(kTerms * kBlockRows);
    for (std::int64_t term0 = 0; term0 < terms; term0 += kTerms) {
      for (std::int64_t col0 = 0; col0 < cols; col0 += kCols) add_panel(row0, row1, col0, term0, panel, of_a);
    }
  });
}

// y = z / (1 + e^-z). An error of z reaches y multiplied by the derivative. The derivative is taken at its largest over
// the interval that z may lie in: in tf32 an error is 2^-9 of the terms, and in the tail the derivative grows e-fold
// with each 1. The error of the exponential and the division is relative to y and grows with |z|, from rounding the
// exponent. A y below 2^-110 may come out as zero: e^-z overflows.
void apply_silu(double& value, double& magnitude) {
  const double z = value;
  const double reach = magnitude / 512;
  double slope = 0;
  for (const double point : {z - reach, z, z + reach}) {
    slope = std::max(slope, std::abs(reference::derivative(Activation::silu, point)));
  }
  value = reference::value(Activation::silu, z);
  magnitude = slope * magnitude + (std::abs(z) + 4) * std::abs(value) + 0x1p-90;
}

// x [m, k] of the layer whose tensor names end in `number`, joined from x and x_rest where the problem splits it.
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
  parallel_for(p.silu ? std::ssize(y.value) : 0, 1 << 12, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) apply_silu(y.value[i], y.magnitude[i]);
  });
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
    std::size_t i = 0;
    for (std::size_t m = 0; m < std::size_t(p.m); ++m) {
      for (int k = from; k < to; ++k, ++i) {
        columns.value[i] = dx.value[m * p.k + k];
        columns.magnitude[i] = dx.magnitude[m * p.k + k];
      }
    }
    return columns;
  };
  outputs["dx"] = part(0, p.split);
  outputs["dx_rest"] = part(p.split, p.k);
  return outputs;
}

// Add dw and dbias of the layer whose tensor names end in `number`.
void add_wgrad(NamedOutputs& outputs, const Problem& p, const HostTensors& in, const std::string& number) {
  const std::vector<float>& dy = in["dy" + number];
  const auto of_dy = [&](std::int64_t n, std::int64_t m) { return dy[m * p.n + n]; };
  Expected dw = zeros(std::size_t(p.n) * p.k);
  multiply(dw, p.n, p.m, p.k, of_dy, whole_x(p, in, number));
  outputs["dw" + number] = std::move(dw);
  if (p.bias) {
    Expected dbias = zeros(p.n);
    multiply(dbias, p.n, p.m, 1, of_dy, std::vector<double>(p.m, 1.0));
    dbias.discriminating = p.m > 1;  // a single row's dbias is dy itself
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
