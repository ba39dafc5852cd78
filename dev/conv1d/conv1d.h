// conv1d: one-dimensional convolution, as the U-Net of Diffusion Policy (Chi et al. 2023) has it, alone or as the first part
// of that network's block.
//
// For every sample n, position o of the output and output channel k:
//
//     fprop   y[n][o][k] = conv[n][o][k] + bias[k] + residual[n][o][k]
//     block   y[n][o][k] = scale[n][k] * act(gamma[k] * xhat[n][o][k] + beta[k]) + shift[n][k] + residual[n][o][k]
//
//     conv[n][o][k] = sum over taps t and c of  x[n][i][c] * w[k][t][c],  x reading as zero outside 0..l-1, where
//                       i = o + t - taps/2      taps 1, 3, 5 or 7: the output is as long as the input
//                       i = 2 o + t - 1         stride2, 3 taps: half as long, rounded up
//                       2 i = o + 1 - t         transposed, 4 taps: twice as long; two taps reach every position
//     xhat          = (h - mean) / sqrt(var + 1e-5), h = conv + bias, over all positions and the channels of k's group
//     act           = mish where the problem says so, else the identity
//     scale, shift  = rows of 2k: film_step, the same for all samples, plus film, a row a sample; scale multiplies as it is.
//                     With the word `shift` instead of `film` there is no scale, and rows are k long
//
// (PyTorch's conv1d(padding=taps/2), conv1d(stride=2, padding=1) and conv_transpose1d(stride=2, padding=1), and group_norm.)
//
//     x  [n, l, c]     w  [k, taps, c]     y, residual  [n, out_l, k]     bias, gamma, beta  [k]
//     with split: x [n, l, split] and x_rest [n, l, c - split], a concatenation that is not materialised
//
// Seen as a matrix product (implicit GEMM): M = k, N = n*out_l positions, K = terms*c ordered (t, c).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ceil_div.h"  // __host__ and __device__
#include "core/registry.h"

namespace ladder::conv1d {

inline constexpr float kEpsilon = 1e-5f;  // of the normalisation
inline constexpr int kTransposedTaps = 4;

struct Problem {
  int n = 1;     // samples
  int l = 1;     // positions of the input
  int c = 1;     // input channels
  int k = 1;     // output channels
  int taps = 1;  // of the filter
  bool stride2 = false;
  bool transposed = false;
  bool bias = false;         // fprop only: block always has a bias
  bool residual = false;     // a tensor of y's shape is added
  Dtype dtype = Dtype::f32;  // of x, w, residual and y; the others are fp32, and so are sums

  // Used by pass `block` only; fprop ignores them.
  int g = 1;  // groups of channels; divides k
  bool mish = false;
  bool film = false;   // scale and shift
  bool shift = false;  // shift alone
  int pitch = 0;       // floats from one row of film to the next
  int split = 0;       // channels of x, the others are x_rest's; 0: x has all

  // "n1 l16 c256 k256 taps5 bias bf16", "n3 l4 c64 k32 taps5 g8 mish film pitch96 split24 residual fp16": parse(str()) is the
  // same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32; without `pitch`, rows of film lie one after the other.
  static Problem parse(std::string_view line);

  __host__ __device__ constexpr int out_l() const { return transposed ? 2 * l : stride2 ? (l + 1) / 2 : l; }
  // Terms of a position's sum, of c products each, are numbered from 0. Term j of position o multiplies w[k][tap(o, j)]
  // and x[n][from(o, j)], which is zero if from(o, j) is not in 0..l-1.
  __host__ __device__ constexpr int terms() const { return transposed ? kTransposedTaps / 2 : taps; }
  __host__ __device__ constexpr int tap(int o, int j) const { return transposed ? 2 * j + 1 - o % 2 : j; }
  __host__ __device__ constexpr int from(int o, int j) const {
    if (transposed) return o / 2 + o % 2 - j;
    return stride2 ? 2 * o + j - 1 : o + j - taps / 2;
  }

  __host__ __device__ constexpr int group_channels() const { return k / g; }
  __host__ __device__ constexpr int film_width() const { return film ? 2 * k : shift ? k : 0; }
  bool operator==(const Problem&) const = default;

  // Returns a small fp32 problem.
  static Problem random(std::uint64_t seed);
};

struct Fprop {
  static constexpr const char* kLayer = "conv1d";
  static constexpr const char* kName = "fprop";
  static constexpr bool kDefault = true;
  using Problem = conv1d::Problem;

  struct Tensors {
    const void* x;         // [n, l, c] dtype
    const void* w;         // [k, taps, c] dtype
    const float* bias;     // [k], or null
    const void* residual;  // [n, out_l, k] dtype, or null
    void* y;               // [n, out_l, k] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  // Two per multiply-add of the convolution, positions outside x counted as if they were inside (the convention of all
  // papers).
  static double flops(const Problem& p);
};

struct Block {
  static constexpr const char* kLayer = "conv1d";
  static constexpr const char* kName = "block";
  static constexpr bool kExact = false;
  using Problem = conv1d::Problem;

  struct Tensors {
    const void* x;           // [n, l, c] dtype, or [n, l, split]
    const void* x_rest;      // [n, l, c - split] dtype, or null
    const void* w;           // [k, taps, c] dtype
    const float* bias;       // [k]
    const float* gamma;      // [k]
    const float* beta;       // [k]
    const float* film_step;  // [film_width], or null
    const float* film;       // [n, pitch], or null
    const void* residual;    // [n, out_l, k] dtype, or null
    void* y;                 // [n, out_l, k] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Traffic traffic(const Problem& p);  // counts only the columns of film that are read
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p) { return Fprop::flops(p); }  // the convolution's
};

}  // namespace ladder::conv1d
