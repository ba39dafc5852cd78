// groupnorm: group normalisation (Wu and He 2018) of an NHWC image, with its activation, as the residual blocks of a
// diffusion U-Net use it.
//
// Forward, for every image n and group of channels j, of m = h * w * c/g elements:
//
//     mean[n][j] = sum of x / m          rstd[n][j] = 1 / sqrt(sum of (x - mean)^2 / m + eps)
//     y[n][p][q][c] = act(z),   z = gamma[c] * xhat + beta[c],   xhat = (x[n][p][q][c] - mean[n][j]) * rstd[n][j]
//
//     x, y  [n, h, w, c]  NHWC          gamma, beta  [c]  optional          mean, rstd  [n, g]  fp32
//
// Backward, with dy the gradient of a loss with respect to y, dz = dy * act'(z), and mean and rstd as the forward pass
// left them:
//
//     dx      = rstd * (gamma[c] * dz - (A + xhat * B) / m),   A = sum of gamma * dz,  B = sum of gamma * dz * xhat
//     dgamma[c] = sum over n, p, q of dz * xhat                        over the group's m elements
//     dbeta[c]  = sum over n, p, q of dz
//
// Two words of a problem line fuse the operation that follows dx in a network into the pass, before dx is rounded:
//
//     addend1, addend2   dx += one or two images [n, h, w, c]: gradients of x from its other consumers
//     embedding          de[n][c] = sum over p, q of dx: the gradient of a row that was added to all pixels of x
//
// As in dev/add, de is columns [first, first + c) of a matrix [n, embedding]; the other columns are left unchanged. The
// two words exclude each other: de would be ambiguous, and no network here has both in one place.
//
// With `split` both passes read x from two tensors: channels [0, split) from x, channels [split, c) from x_rest.
//
// (PyTorch's group_norm(x, g, gamma, beta, eps) followed by the activation, and their gradients.)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"
#include "dev/common/activation_kind.h"

namespace ladder::groupnorm {

using ladder::Activation;

struct Problem {
  int n = 1;  // images
  int h = 1;  // rows
  int w = 1;  // columns
  int c = 1;  // channels
  int g = 1;  // groups, a divisor of c
  Activation activation = Activation::identity;
  bool affine = true;        // gamma and beta exist; otherwise they count as 1 and 0
  bool params16 = false;     // gamma, beta, dgamma and dbeta are of dtype, instead of fp32
  Dtype dtype = Dtype::f32;  // of x, y, dx and dy; everything else is fp32
  int mean = 0;              // of x's random values; their standard deviation is 2, or more if dtype needs it
  float eps = 1e-5f;         // positive and finite
  int split = 0;             // channels of the first of x's two tensors; 0: one tensor
  // Backward only.
  int addends = 0;    // images added to dx, at most 2
  int embedding = 0;  // columns of the matrix that de is part of; 0: no de
  int first = 0;      // column of de

  // "n32 h64 w64 c64 g32 silu bf16", "n1 h5 w7 c6 g3 params16 mean20000 eps0.5 fp16", "n32 h8 w8 c256 g32 silu addend2 bf16",
  // "n32 h8 w8 c512 g32 silu split256 bf16", "n32 h8 w8 c256 g32 silu embedding3712 first1920 bf16": parse(str()) is the same
  // problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32, one without an activation has none, one without eps has 1e-5.
  static Problem parse(std::string_view line);

  Dtype parameter_dtype() const { return params16 ? storage_dtype(dtype) : Dtype::f32; }
  int pixels() const { return h * w; }  // of an image
  int channels_per_group() const { return c / g; }
  std::int64_t elements() const { return std::int64_t{n} * h * w * c; }
  std::int64_t group_size() const { return std::int64_t{h} * w * (c / g); }
  bool operator==(const Problem&) const = default;

  // Returns a small fp32 problem whose outputs are no constants.
  static Problem random(std::uint64_t seed);
};

// Returns true if every pixel of every tensor begins at a multiple of 16 bytes.
inline bool whole_vectors(const Problem& p) {
  return p.c * size_of(p.dtype) % 16 == 0 && p.split * size_of(p.dtype) % 16 == 0;
}

// Returns null, or the reason why a version that reads x from one tensor cannot run the problem.
inline const char* one_x_only(const Problem& p) { return p.split != 0 ? "x must be one tensor" : nullptr; }

// Returns null, or the reason why a version without addends and de cannot run the problem.
inline const char* plain_dx_only(const Problem& p) {
  if (p.embedding != 0) return "it does not sum dx over an image";
  return p.addends != 0 ? "it adds nothing to dx" : nullptr;
}

// Returns null, or the reason why a version that reads fp32 parameters cannot run the problem.
inline const char* fp32_parameters_only(const Problem& p) {
  return p.affine && p.parameter_dtype() != Dtype::f32 ? "gamma and beta must be fp32" : nullptr;
}

// Returns null, or the reason why a version that reads x from one tensor and fp32 parameters cannot run the problem.
inline const char* plain_inputs_only(const Problem& p) {
  const char* const why = one_x_only(p);
  return why ? why : fp32_parameters_only(p);
}

// Returns null, or the reason why a backward version without addends, de, `split` and `params16` cannot run the
// problem.
inline const char* plain_only(const Problem& p) {
  const char* const why = plain_dx_only(p);
  return why ? why : plain_inputs_only(p);
}

struct Forward {
  static constexpr const char* kLayer = "groupnorm";
  static constexpr const char* kName = "forward";
  static constexpr bool kDefault = true;
  static constexpr bool kExact = false;
  using Problem = groupnorm::Problem;

  struct Tensors {
    const void* x;       // [n, h, w, c], or [n, h, w, split], dtype
    const float* gamma;  // [c] parameter_dtype(), or null; parameters.h reads it
    const float* beta;   // likewise, together with gamma
    void* y;             // [n, h, w, c] dtype
    float* mean;         // [n, g]
    float* rstd;         // [n, g]
    const void* x_rest;  // [n, h, w, c - split] dtype, or null; parts_of_x.h reads both
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  // Per element 2 for mean and variance, 4 for z, 4 for the activation. A convention: memory traffic hides all of them.
  static double flops(const Problem& p);
};

struct Backward {
  static constexpr const char* kLayer = "groupnorm";
  static constexpr const char* kName = "backward";
  static constexpr bool kExact = false;
  using Problem = groupnorm::Problem;

  struct Tensors {
    const void* x;       // [n, h, w, c], or [n, h, w, split], dtype
    const void* dy;      // [n, h, w, c] dtype
    const float* gamma;  // [c] parameter_dtype(), or null; parameters.h reads it
    const float* beta;   // likewise, together with gamma
    const float* mean;   // [n, g], of x
    const float* rstd;   // [n, g], of x
    void* dx;            // [n, h, w, c] dtype
    float* dgamma;       // [c] parameter_dtype(), or null together with gamma
    float* dbeta;        // likewise
    // Null unless the problem line has the word for them.
    const void* addend;   // [n, h, w, c] dtype
    const void* addend2;  // likewise
    float* de;            // [n, embedding]
    const void* x_rest;   // [n, h, w, c - split] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static Traffic traffic(const Problem& p);  // counts only the c columns of de that are written
  // Per element 4 for z and xhat, 8 for the derivative, 4 for two sums, 5 for dx. A convention, as Forward's.
  static double flops(const Problem& p);
  // Computes the inputs mean and rstd from x.
  static void derive(const Problem& p, HostTensors& inputs);
};

// Returns x [n, h, w, c], joined from its two tensors if there is a `split`.
std::vector<float> whole_x(const Problem& p, const HostTensors& inputs);

// Mean and rstd of every group [n, g] in double precision.
struct Statistics {
  std::vector<double> mean;
  std::vector<double> rstd;
};
Statistics statistics(const Problem& p, const std::vector<float>& x);

}  // namespace ladder::groupnorm
