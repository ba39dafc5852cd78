// conv3x3: two-dimensional 3x3 convolution, stride 1, padding 1, as the residual blocks of a diffusion U-Net use it.
//
// Forward (fprop), for every image n, pixel (p, q) and output channel k:
//
//     y[n][p][q][k] = bias[k] + e[n][k] + r[n][p][q][k]
//                     + sum over r, s in 0..2 and c of  x[n][p+r-1][q+s-1][c] * w[k][r][s][c]
//
// where x reads as zero outside the image (PyTorch's conv2d(x, w, bias, padding=1), a cross-correlation).
//
//     x     [n, h, w, c]  NHWC          y  [n, h, w, k]  NHWC
//     w     [k, 3, 3, c]  KRSC          bias  [k]  optional
//     r     [n, h, w, k]  a residual, optional      e  [n, k]  fp32, optional: k columns, from `first` on, of a matrix of rows
//
// Seen as a matrix product (implicit GEMM): M = n*h*w pixels, N = k, K = 9*c ordered (r, s, c).
//
// Backward, with dy the gradient of a loss with respect to y; dy and x read as zero outside the image:
//
//     dgrad   dx[n][i][j][c] = sum over r, s, k of  dy[n][i+1-r][j+1-s][k] * w[k][r][s][c]
//     wgrad   dw[k][r][s][c] = sum over n, p, q of  dy[n][p][q][k] * x[n][p+r-1][q+s-1][c]
//             dbias[k]       = sum over n, p, q of  dy[n][p][q][k]
//     wgrad_batch   wgrad of `batch` layers of one shape, each with tensors of its own: x0, dy0, dw0, dbias0, x1, ...;
//                   dbias is fp32, whatever params16 says
//
// dgrad is the convolution of dy with weights whose taps are flipped and whose channels are exchanged: M = n*h*w, N = c,
// K = 9*k. wgrad: M = k, N = 9*c, K = n*h*w pixels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::conv3x3 {

inline constexpr int kMaxBatch = 8;  // a kernel takes two tensor maps a layer as parameters, 128 bytes each

struct Problem {
  int n = 1;                 // images
  int h = 1;                 // rows, of the input and of the output
  int w = 1;                 // columns
  int c = 1;                 // input channels
  int k = 1;                 // output channels
  bool bias = false;         // fprop adds a bias, wgrad computes dbias; dgrad ignores it
  bool params16 = false;     // bias and dbias are of a 16-bit dtype too, instead of fp32
  bool residual = false;     // fprop only
  int batch = 1;             // wgrad_batch only: layers, up to kMaxBatch
  Dtype dtype = Dtype::f32;  // of x, w, r and y; sums are fp32; tf32 has fp32 outputs and an fp32 r
  int embedding = 0;         // fprop only: columns of the matrix whose rows are added to images; 0: none
  int first = 0;             // column of e

  // "n32 h64 w64 c64 k64 bf16", "n1 h5 w7 c3 k64 bias params16 embedding96 first8 residual fp16",
  // "n32 h8 w8 c256 k256 bias batch8 bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  Dtype parameter_dtype() const { return params16 ? storage_dtype(dtype) : Dtype::f32; }
  std::int64_t pixels() const { return std::int64_t{n} * h * w; }
  bool operator==(const Problem&) const = default;

  // Returns a small fp32 problem, with tails and borders as likely as whole tiles.
  static Problem random(std::uint64_t seed);
};

// Returns null, or the reason why a version that reads an fp32 bias cannot run the problem.
inline const char* fp32_bias_only(const Problem& p) {
  return p.bias && p.parameter_dtype() != Dtype::f32 ? "the bias must be fp32" : nullptr;
}

// Returns null, or the reason why a version that adds nothing but a bias cannot run the problem.
inline const char* bias_only(const Problem& p) {
  return p.embedding > 0 || p.residual ? "it adds no embedding and no residual" : nullptr;
}

// Returns null, or the reason why a version that adds nothing but an fp32 bias cannot run the problem.
inline const char* plain_only(const Problem& p) {
  const char* const why = bias_only(p);
  return why ? why : fp32_bias_only(p);
}

struct Fprop {
  static constexpr const char* kLayer = "conv3x3";
  static constexpr const char* kName = "fprop";
  static constexpr bool kDefault = true;
  using Problem = conv3x3::Problem;

  struct Tensors {
    const void* x;             // [n, h, w, c] dtype
    const void* w;             // [k, 3, 3, c] dtype
    const float* bias;         // [k] parameter_dtype(), or null; dev/common/parameter_type.h
    const float* e = nullptr;  // [n, embedding], or null
    const void* r = nullptr;   // [n, h, w, k] dtype (fp32 for tf32), or null
    void* y;                   // [n, h, w, k] dtype (fp32 for tf32)
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Traffic traffic(const Problem& p);
  static Tensors bind(const Pointers& at);
  // Two per multiply-add of the formula above, borders counted as if they were inside (the convention of all papers).
  static double flops(const Problem& p);
};

struct Dgrad {
  static constexpr const char* kLayer = "conv3x3";
  static constexpr const char* kName = "dgrad";
  using Problem = conv3x3::Problem;

  struct Tensors {
    const void* dy;  // [n, h, w, k] dtype
    const void* w;   // [k, 3, 3, c] dtype
    void* dx;        // [n, h, w, c] dtype (fp32 for tf32)
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p);  // as fprop's
};

struct Wgrad {
  static constexpr const char* kLayer = "conv3x3";
  static constexpr const char* kName = "wgrad";
  using Problem = conv3x3::Problem;

  struct Tensors {
    const void* x;   // [n, h, w, c] dtype
    const void* dy;  // [n, h, w, k] dtype
    void* dw;        // [k, 3, 3, c] dtype (fp32 for tf32)
    float* dbias;    // [k] parameter_dtype(), or null; dev/common/parameter_type.h
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p);  // of dw: as fprop's
};

struct WgradBatch {
  static constexpr const char* kLayer = "conv3x3";
  static constexpr const char* kName = "wgrad_batch";
  using Problem = conv3x3::Problem;

  struct Tensors {  // the first `batch` of each
    const void* x[kMaxBatch];
    const void* dy[kMaxBatch];
    void* dw[kMaxBatch];
    float* dbias[kMaxBatch];
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p);
};

}  // namespace ladder::conv3x3
