// layernorm: layer normalisation (Ba, Kiros and Hinton 2016) of the rows of a matrix, with a scale and a shift for each
// column.
//
// Forward, for every row m:
//
//     mean[m] = sum of x / n          rstd[m] = 1 / sqrt(sum of (x - mean)^2 / n + eps)
//     y[m][n] = gamma[n] * xhat + beta[n],   xhat = (x[m][n] - mean[m]) * rstd[m]
//
//     x, y  [m, n]          gamma, beta  [n]  fp32          mean, rstd  [m]  fp32
//
// Backward, with dy the gradient of a loss with respect to y, and mean and rstd as the forward pass left them:
//
//     dx        = rstd * (gamma * dy - (A + xhat * B) / n),   A = sum of gamma * dy,  B = sum of gamma * dy * xhat
//     dgamma[n] = sum over m of dy * xhat                     over the row's n elements
//     dbeta[n]  = sum over m of dy
//
// (PyTorch's layer_norm(x, shape, gamma, beta, eps) and its gradients: n is the product of the normalised dimensions.)
//
// Random rows of x have means that are not near zero, and neighbours' means and deviations differ: else no check could
// tell those of long rows from constants. Nor could it tell their A and B from zeros: so gamma has a mean of one, and
// dy is not negative where x is large.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::layernorm {

struct Problem {
  int m = 1;                 // rows
  int n = 1;                 // elements of a row
  Dtype dtype = Dtype::f32;  // of x, y, dx and dy; everything else is fp32
  int mean = 0;              // x is drawn about it with a deviation of 2, or more where dtype is coarser
  float eps = 1e-5f;         // positive and finite

  // "m64 n64 bf16", "m5 n7 mean20000 eps0.5 fp16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32, one without eps has 1e-5.
  static Problem parse(std::string_view line);

  std::int64_t elements() const { return std::int64_t{m} * n; }
  // in_vectors(): rows are whole 16-byte vectors. vectors(): vectors of a row, or elements where rows are not.
  bool in_vectors() const { return n * size_of(dtype) % 16 == 0; }
  int vectors() const { return in_vectors() ? static_cast<int>(n * size_of(dtype) / 16) : n; }
  bool operator==(const Problem&) const = default;

  // Draw a small fp32 problem whose results are not constants.
  static Problem random(std::uint64_t seed);
};

struct Forward {
  static constexpr const char* kLayer = "layernorm";
  static constexpr const char* kName = "forward";
  static constexpr bool kDefault = true;
  static constexpr bool kExact = false;
  using Problem = layernorm::Problem;

  struct Tensors {
    const void* x;       // [m, n] dtype
    const float* gamma;  // [n]
    const float* beta;   // [n]
    void* y;             // [m, n] dtype
    float* mean;         // [m]
    float* rstd;         // [m]
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static void derive(const Problem& p, HostTensors& inputs);  // makes x's rows differ; idempotent
  // Two additions for mean and variance, four operations for y: a convention, as all of it hides behind the memory's
  // traffic.
  static double flops(const Problem& p) { return 6.0 * static_cast<double>(p.elements()); }
};

struct Backward {
  static constexpr const char* kLayer = "layernorm";
  static constexpr const char* kName = "backward";
  static constexpr bool kExact = false;
  using Problem = layernorm::Problem;

  struct Tensors {
    const void* x;       // [m, n] dtype
    const void* dy;      // [m, n] dtype
    const float* gamma;  // [n]
    const float* mean;   // [m], of x
    const float* rstd;   // [m], of x
    void* dx;            // [m, n] dtype
    float* dgamma;       // [n]
    float* dbeta;        // [n]
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  // Per element: xhat 2, four sums 6, dx 5; likewise a convention.
  static double flops(const Problem& p) { return 13.0 * static_cast<double>(p.elements()); }
  // Folds x likewise, makes dy non-negative where x is large, and fills in mean and rstd.
  static void derive(const Problem& p, HostTensors& inputs);
};

// Mean and rstd of every row [m] in double precision.
struct Statistics {
  std::vector<double> mean;
  std::vector<double> rstd;
};
Statistics statistics(const Problem& p, const std::vector<float>& x);

}  // namespace ladder::layernorm
