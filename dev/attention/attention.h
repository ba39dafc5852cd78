// attention: self-attention over the pixels of an image as guided-diffusion's QKVAttentionLegacy has it, between the 1x1
// convolutions that make qkv and take o.
//
// For every image and head, with q, k and v rows of d channels, one a token (a pixel), and scale = 1 / sqrt(d):
//
//     s[i][j] = scale * q[i].k[j]              (the paper's code scales q and k by 1 / sqrt(sqrt(d)) each)
//     lse[i]  = ln(sum over j of e^s[i][j])
//     p[i][j] = e^(s[i][j] - lse[i])           (softmax over the keys j)
//     o[i]    = sum over j of p[i][j] * v[j]
//
//     qkv  [n, t, 3c], c = heads * d   channels as [heads][3][d]: of each head q, then k, then v
//     o    [n, t, c]                   channels as [heads][d]
//     lse  [n, heads, t]  fp32
//
// Backward, with d_o the gradient of a loss with respect to o, and o and lse as the forward pass left them:
//
//     delta[i] = d_o[i].o[i]
//     ds[i][j] = p[i][j] * (d_o[i].v[j] - delta[i])
//     dq[i] = scale * sum over j of ds[i][j] * k[j]
//     dk[j] = scale * sum over i of ds[i][j] * q[i]
//     dv[j] =         sum over i of p[i][j] * d_o[i]          dqkv  [n, t, 3c], as qkv
//
// Sums are fp32. In 16-bit problems the tensor cores want p and ds in the problem's type: the formula lets both be rounded
// to it on their way into the second product, and nothing else.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::attention {

inline constexpr int kMaxTokens = 1024;

struct Problem {
  int n = 1;                 // images
  int t = 1;                 // tokens of an image, at most kMaxTokens
  int heads = 1;             // of an image
  int d = 32;                // channels of a head: 32 or 64
  Dtype dtype = Dtype::f32;  // of qkv, o, d_o and dqkv; tf32 has fp32 outputs

  // "n32 t256 heads6 d32 bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  int c() const { return heads * d; }
  std::int64_t tokens() const { return std::int64_t{n} * t; }
  std::int64_t scores() const { return tokens() * heads * t; }
  bool operator==(const Problem&) const = default;

  // Any small problem of at least four tokens, tails as likely as whole tiles; fp32. Of a single token dq and dk are zero by
  // the formula, and of two or three close to it wherever the softmax picks one: a check must not take that for an answer.
  static Problem random(std::uint64_t seed);
};

struct Forward {
  static constexpr const char* kLayer = "attention";
  static constexpr const char* kName = "forward";
  static constexpr bool kDefault = true;
  static constexpr bool kExact = false;
  using Problem = attention::Problem;

  struct Tensors {
    const void* qkv;  // [n, t, 3c] dtype
    void* o;          // [n, t, c] dtype (fp32 for tf32)
    float* lse;       // [n, heads, t]
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  // Two per multiply-add of the two products; the exponentials, a 2d-th of that, are not counted (the papers' convention).
  static double flops(const Problem& p);
};

struct Backward {
  static constexpr const char* kLayer = "attention";
  static constexpr const char* kName = "backward";
  static constexpr bool kExact = false;
  using Problem = attention::Problem;

  struct Tensors {
    const void* qkv;   // [n, t, 3c] dtype
    const void* o;     // [n, t, c] dtype (fp32 for tf32), of qkv
    const float* lse;  // [n, heads, t], of qkv
    const void* d_o;   // [n, t, c] dtype
    void* dqkv;        // [n, t, 3c] dtype (fp32 for tf32)
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  // Of five products, p's among them, which is made again: 2.5 times the forward pass (the papers' convention).
  static double flops(const Problem& p);
  // Fills in o and lse, which follow from qkv.
  static void derive(const Problem& p, HostTensors& inputs);
};

inline float scale_of(const Problem& p) { return 1.0f / std::sqrt(static_cast<float>(p.d)); }

// For versions whose grid has a row of blocks for each head and a layer for each image.
inline const char* too_large_grid(const Problem& p) {
  return p.n > 65535 || p.heads > 65535 ? "a grid has at most 65535 blocks of n, and of heads" : nullptr;
}

// Where one head of one image lies: its elements are at `first` + token * `pitch` + channel.
struct HeadView {
  std::int64_t first = 0;
  std::int64_t pitch = 0;
};
// `part` of qkv: 0 is q, 1 is k, 2 is v.
inline HeadView part_of_qkv(const Problem& p, std::int64_t image, int head, int part) {
  return {.first = (image * p.t * p.heads + head) * 3 * p.d + std::int64_t{part} * p.d,
          .pitch = std::int64_t{3} * p.c()};
}
inline HeadView head_of_o(const Problem& p, std::int64_t image, int head) {
  return {.first = (image * p.t * p.heads + head) * p.d, .pitch = p.c()};
}

// o [n, t, c] and lse [n, heads, t] in double precision.
struct Attended {
  std::vector<double> o;
  std::vector<double> lse;
};
Attended attend(const Problem& p, const std::vector<float>& qkv);

}  // namespace ladder::attention
