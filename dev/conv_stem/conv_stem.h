// conv_stem: the first layer of a convolutional network (AlexNet's stem): a large filter with a large stride over few
// channels, in fp32.
//
// For every image n, pixel (p, q) of the output and output channel k:
//
//     fprop      y[n][p][q][k] = conv[n][p][q][k]
//                              = bias[k] + sum over i, j in 0..r-1 and c of
//                                          x[n][stride*p + i - pad][stride*q + j - pad][c] * w[k][i][j][c]
//     relu_pool  y[n][p][q][k] = max(0, conv[n][2p+i][2q+j][k] over i, j in 0..2)
//
// where x reads as zero outside the image: PyTorch's conv2d(x, w, bias, stride, padding), a cross-correlation, and
// max_pool2d(relu(conv2d(...)), 3, stride=2).
//
//     x     [n, h, w, c]  NHWC          y  [n, out_h, out_w, k], of relu_pool [n, pool_h, pool_w, k]  NHWC
//     w     [k, r, r, c]  KRSC          bias  [k]  optional
//
//     out_h = (h + 2 pad - r) / stride + 1      pool_h = (out_h - 3) / 2 + 1      out_w and pool_w likewise
//
// Seen as a matrix product (implicit GEMM): M = n*out_h*out_w pixels, N = k, K = r*r*c ordered (i, j, c). With NHWC a row
// of the filter meets r*c consecutive floats of x.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ceil_div.h"  // __host__ and __device__
#include "core/registry.h"

namespace ladder::conv_stem {

struct Problem {
  int n = 1;                 // images
  int h = 1;                 // rows of the input
  int w = 1;                 // columns of the input
  int c = 1;                 // input channels
  int k = 1;                 // output channels
  int r = 1;                 // rows and columns of the filter
  int stride = 1;            // of both
  int pad = 0;               // rows and columns of zeros on each side of x; less than r
  bool bias = false;         // whether there is one
  bool allow_tf32 = false;   // the factors of a product may be rounded to TF32's 10 mantissa bits
  Dtype dtype = Dtype::f32;  // of all tensors: nothing else

  // "n100 h224 w224 c3 k96 r11 stride4 pad2 bias allow_tf32 fp32": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError, also where the convolution's output is smaller than a pooling window.
  static Problem parse(std::string_view line);

  __host__ __device__ constexpr int out_h() const { return (h + 2 * pad - r) / stride + 1; }
  __host__ __device__ constexpr int out_w() const { return (w + 2 * pad - r) / stride + 1; }
  __host__ __device__ constexpr int pool_h() const { return (out_h() - 3) / 2 + 1; }
  __host__ __device__ constexpr int pool_w() const { return (out_w() - 3) / 2 + 1; }
  __host__ __device__ constexpr int filter() const { return r * r * c; }  // elements of an output channel's filter
  bool operator==(const Problem&) const = default;

  // Any small problem, half of them with the published geometry: 3 channels, 11x11, stride 4, padding 2.
  static Problem random(std::uint64_t seed);
};

// Null, or why a version that rounds the factors of its products cannot run the problem.
inline const char* tf32_only(const Problem& p) {
  return p.allow_tf32 ? nullptr : "it rounds factors to 10 mantissa bits: needs allow_tf32";
}

struct Fprop {
  static constexpr const char* kLayer = "conv_stem";
  static constexpr const char* kName = "fprop";
  static constexpr bool kDefault = true;
  using Problem = conv_stem::Problem;

  struct Tensors {
    const float* x;     // [n, h, w, c]
    const float* w;     // [k, r, r, c]
    const float* bias;  // [k], or null
    float* y;           // [n, out_h, out_w, k]
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  // Two per multiply-add of the convolution, the padding counted as if it were inside (the convention of all papers).
  static double flops(const Problem& p);
};

struct ReluPool {
  static constexpr const char* kLayer = "conv_stem";
  static constexpr const char* kName = "relu_pool";
  using Problem = conv_stem::Problem;

  struct Tensors {
    const float* x;     // [n, h, w, c]
    const float* w;     // [k, r, r, c]
    const float* bias;  // [k], or null
    float* y;           // [n, pool_h, pool_w, k]
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p) { return Fprop::flops(p); }
};

}  // namespace ladder::conv_stem
