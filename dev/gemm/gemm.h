// gemm: a matrix times a transposed matrix, as linear layers and the 1x1 convolutions of a U-Net use it (an image with its
// channels last is a matrix with a row for each pixel).
//
// Forward (fprop), for every row m and output feature n:
//
//     z[m][n] = bias[n] + r[m][n] + sum over k of  x[m][k] * w[n][k]        bias and r where the problem says so
//     y[m][n] = z, or with `silu` z / (1 + exp(-z)):  the activation comes last, after bias and residual
//
//     x  [m, k]      w  [n, k]      bias [n]      r, y  [m, n]
//
// Backward, with dy the gradient of a loss with respect to z; `residual` and `silu` change nothing here:
//
//     dgrad   dx[m][k]  = r[m][k] + sum over n of  dy[m][n] * w[n][k]        r with `accumulate`: what x got elsewhere
//     wgrad   dw[n][k]  = sum over m of  dy[m][n] * x[m][k]
//             dbias[n]  = sum over m of  dy[m][n]               with `bias`
//     wgrad_batch   wgrad of `batch` layers of one shape, each with tensors of its own: x0, dy0, dw0, dbias0, x1, ...;
//                   dbias is fp32, whatever params16 says
//
// With `split`, x is two tensors side by side, and so is dx: the columns from `split` on are those of x_rest and dx_rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::gemm {

inline constexpr int kMaxBatch = 8;  // a kernel takes three tensor maps a layer as parameters, 128 bytes each

struct Problem {
  int m = 1;                 // rows: pixels of all images, or samples
  int n = 1;                 // output features
  int k = 1;                 // input features
  bool bias = false;         // wgrad: whether dbias is computed; dgrad ignores it
  bool residual = false;     // fprop only
  bool silu = false;         // fprop only
  bool accumulate = false;   // dgrad only
  int split = 0;             // columns of x and dx of the first of two tensors; 0: one tensor
  int batch = 1;             // wgrad_batch only: layers, up to kMaxBatch
  Dtype dtype = Dtype::f32;  // of x, w, r and y; sums are fp32; tf32 has fp32 outputs and an fp32 r
  bool allow_tf32 = false;   // of fp32 tensors: the factors of a product may be rounded to TF32's 10 mantissa bits
  bool params16 = false;     // whether bias and dbias are of a 16-bit dtype too, instead of fp32

  // "m131072 n64 k192 bias bf16", "m32 n256 k64 bias params16 residual silu fp16", "m32 n8 k64 accumulate split40 fp32",
  // "m2048 n768 k256 bias batch6 bf16", "m4096 n4096 k4096 allow_tf32 fp32": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  // To which the terms of a matrix product may be rounded.
  std::optional<Dtype> rounded_terms() const {
    return allow_tf32 && dtype == Dtype::f32 ? std::optional(Dtype::tf32) : std::nullopt;
  }
  Dtype parameter_dtype() const { return params16 ? storage_dtype(dtype) : Dtype::f32; }
  bool operator==(const Problem&) const = default;

  // Any small problem, tails as likely as whole tiles; fp32.
  static Problem random(std::uint64_t seed);
};

// Null, or why a version whose kernels read one x cannot run the problem.
inline const char* one_x_only(const Problem& p) { return p.split > 0 ? "x must be one tensor" : nullptr; }

// Null, or why a version whose kernels read one x and an fp32 bias cannot run the problem.
inline const char* plain_only(const Problem& p) {
  return p.bias && p.parameter_dtype() != Dtype::f32 ? "the bias must be fp32" : one_x_only(p);
}

struct Fprop {
  static constexpr const char* kLayer = "gemm";
  static constexpr const char* kName = "fprop";
  static constexpr bool kDefault = true;
  using Problem = gemm::Problem;

  struct Tensors {
    const void* x;       // [m, k], or [m, split], dtype
    const void* w;       // [n, k] dtype
    const float* bias;   // [n] parameter_dtype(), or null; dev/common/parameter_type.h
    const void* r;       // [m, n] dtype (fp32 for tf32), or null
    void* y;             // [m, n] dtype (fp32 for tf32)
    const void* x_rest;  // [m, k - split] dtype, or null
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p);                   // two per multiply-add of the matrix product
  static bool exact(const Problem& p) { return !p.silu; }  // integers have integer answers
};

struct Dgrad {
  static constexpr const char* kLayer = "gemm";
  static constexpr const char* kName = "dgrad";
  using Problem = gemm::Problem;

  struct Tensors {
    const void* dy;  // [m, n] dtype
    const void* w;   // [n, k] dtype
    const void* r;   // [m, k] dtype (fp32 for tf32), or null
    void* dx;        // [m, k], or [m, split], dtype (fp32 for tf32)
    void* dx_rest;   // [m, k - split] likewise, or null
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p);
};

struct Wgrad {
  static constexpr const char* kLayer = "gemm";
  static constexpr const char* kName = "wgrad";
  using Problem = gemm::Problem;

  struct Tensors {
    const void* x;       // [m, k], or [m, split], dtype
    const void* dy;      // [m, n] dtype
    void* dw;            // [n, k] dtype (fp32 for tf32)
    float* dbias;        // [n] parameter_dtype(), or null; dev/common/parameter_type.h
    const void* x_rest;  // [m, k - split] dtype, or null
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p);  // of dw
};

struct WgradBatch {
  static constexpr const char* kLayer = "gemm";
  static constexpr const char* kName = "wgrad_batch";
  using Problem = gemm::Problem;

  struct Tensors {  // the first `batch` of each
    const void* x[kMaxBatch];
    const void* dy[kMaxBatch];
    void* dw[kMaxBatch];
    float* dbias[kMaxBatch];
    const void* x_rest[kMaxBatch];
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p);
};

}  // namespace ladder::gemm
