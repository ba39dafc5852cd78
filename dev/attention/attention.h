// attention: self-attention over the pixels of an image as guided-diffusion's QKVAttentionLegacy has it, between the
// 1x1 convolutions that make qkv and take o.
//
// For every image and head, with q, k and v rows of d channels, one a token (a pixel), and scale = 1 / sqrt(d):
//
//     s[i][j] = scale * q[i].k[j]              (the paper's code scales q and k by 1 / sqrt(sqrt(d)) each)
//     lse[i]  = ln(sum over j of e^s[i][j])
//     p[i][j] = e^(s[i][j] - lse[i])           (softmax over the keys j)
//     o[i]    = sum over j of p[i][j] * v[j]
//
//     qkv  [n, t, 3c], c = heads * d   channels as [heads][3][d], or [3][heads][d] with `order-new`; 3: q, k, v
//     o    [n, t, c]                   channels as [heads][d]
//     lse  [n, heads, t]  fp32
//
// `separate` has q, k and v as three tensors, [n, t, heads, d] unless strides say otherwise: `q_head2464 q_token32` is
// [n, heads, t, d] for t = 77, `k_image29568 k_token384` a view into a projection four times as wide. Each stride of q,
// k, v and d_o is free, in elements; a head's channels are contiguous, so that PyTorch's scaled_dot_product_attention
// needs no copy. The caller allocates o, dq, dk and dv, as [n, t, heads, d]. Strides are numbers, not names of layouts,
// since q, k and v may each have another layout (q and k come from rotations, v from a projection).
//
// Backward, with d_o the gradient of a loss with respect to o, and o and lse as the forward pass left them:
//
//     delta[i] = d_o[i].o[i]
//     ds[i][j] = p[i][j] * (d_o[i].v[j] - delta[i])
//     dq[i] = scale * sum over j of ds[i][j] * k[j]
//     dk[j] = scale * sum over i of ds[i][j] * q[i]
//     dv[j] =         sum over i of p[i][j] * d_o[i]          dqkv  [n, t, 3c], as qkv; or dq, dk, dv
//
// Sums are fp32. In 16-bit and tf32 problems p and ds, and nothing else, may be rounded to the problem's type: they are
// operands of the second product on the tensor cores.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::attention {

inline constexpr int kMaxTokens = 1024;

enum class QkvLayout : std::uint8_t { legacy, order_new, separate };

// Strides from an image, a head and a token to the next, in elements.
struct Strides {
  int image = 0;
  int head = 0;
  int token = 0;

  bool operator==(const Strides&) const = default;
};

// Problem sizes that kernels take as an argument.
struct Sizes {
  int n, t, heads, d;
  int c;  // heads * d; with it, later kernel arguments keep the offsets that they had after a Problem
};

struct Problem {
  int n = 1;                 // images
  int t = 1;                 // tokens of an image, at most kMaxTokens
  int heads = 1;             // of an image
  int d = 32;                // channels of a head: 32 or 64
  Dtype dtype = Dtype::f32;  // of qkv, o, d_o and dqkv; tf32 has fp32 outputs
  QkvLayout layout = QkvLayout::legacy;
  Strides q = {}, k = {}, v = {}, d_o = {};  // of `separate`; all zero: [n, t, heads, d]

  // "n32 t256 heads6 d32 bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  int c() const { return heads * d; }
  Sizes sizes() const { return {.n = n, .t = t, .heads = heads, .d = d, .c = c()}; }
  bool packed() const { return layout != QkvLayout::separate; }
  Problem without_strides() const;
  std::int64_t tokens() const { return std::int64_t{n} * t; }
  std::int64_t scores() const { return tokens() * heads * t; }
  bool operator==(const Problem&) const = default;

  // Draw a small fp32 problem of at least four tokens, with partial tiles as likely as full ones. With a single token
  // dq and dk are zero by the formula, and with two or three nearly zero wherever the softmax picks one key: a check
  // must not take zeros for a correct answer.
  static Problem random(std::uint64_t seed);
};

struct Forward {
  static constexpr const char* kLayer = "attention";
  static constexpr const char* kName = "forward";
  static constexpr bool kDefault = true;
  static constexpr bool kExact = false;
  using Problem = attention::Problem;

  struct Tensors {
    const void* qkv;        // [n, t, 3c] dtype
    void* o;                // [n, t, c] dtype (fp32 for tf32)
    float* lse;             // [n, heads, t]
    const void *q, *k, *v;  // in the place of qkv, if `separate`
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static Traffic traffic(const Problem& p);  // without the gaps between rows
  // Two per multiply-add of the two products; the exponentials, a 2d-th of that, are not counted (the papers'
  // convention).
  static double flops(const Problem& p);
};

struct Backward {
  static constexpr const char* kLayer = "attention";
  static constexpr const char* kName = "backward";
  static constexpr bool kExact = false;
  using Problem = attention::Problem;

  struct Tensors {
    const void* qkv;        // [n, t, 3c] dtype
    const void* o;          // [n, t, c] dtype (fp32 for tf32), of qkv
    const float* lse;       // [n, heads, t], of qkv
    const void* d_o;        // [n, t, c] dtype
    void* dqkv;             // [n, t, 3c] dtype (fp32 for tf32)
    const void *q, *k, *v;  // in the place of qkv and dqkv, if `separate`
    void *dq, *dk, *dv;
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static Traffic traffic(const Problem& p);
  // Five products, counting the scores, which are recomputed: 2.5 times the forward pass (the papers' convention).
  static double flops(const Problem& p);
  // Fills in o and lse, which follow from q, k and v.
  static void derive(const Problem& p, HostTensors& inputs);
};

inline float scale_of(const Problem& p) { return 1.0f / std::sqrt(static_cast<float>(p.d)); }

// Returns why heads and images do not fit the dimensions of a grid, or null.
inline const char* too_large_grid(const Problem& p) {
  return p.n > 65535 || p.heads > 65535 ? "a grid has at most 65535 blocks of n, and of heads" : nullptr;
}

// Returns why rows cannot be loaded 16 bytes at a time (a stride is no multiple of 16 bytes), or null.
const char* unaligned_rows(const Problem& p);

inline const char* grid_and_rows(const Problem& p) {
  const char* const reason = too_large_grid(p);
  return reason ? reason : unaligned_rows(p);
}

// Returns why a version for the legacy layout alone cannot run the problem, or null.
inline const char* not_legacy(const Problem& p) {
  return p.layout == QkvLayout::legacy ? too_large_grid(p) : "it takes qkv with channels as [heads][3][d] alone";
}

// One head of one image: channel c of a token is element `first` + token * `pitch` + c.
struct HeadView {
  std::int64_t first = 0;
  std::int64_t pitch = 0;
};

// Heads of q, k, v or a tensor like them: the first head's offset in its tensor and the strides to the others, in
// elements.
struct HeadsView {
  int offset = 0;
  Strides strides;

  HeadView head_view(std::int64_t image, std::int64_t head) const {
    return {.first = offset + image * strides.image + head * strides.head, .pitch = strides.token};
  }
};
// `part` 0 is q, 1 is k, 2 is v, in qkv or in a tensor of its own.
HeadsView heads_of_part(const Problem& p, int part);
HeadsView heads_of_d_o(const Problem& p);
HeadsView heads_of_o(const Problem& p);
// dq, dk or dv.
inline HeadsView heads_of_gradient(const Problem& p, int part) { return heads_of_part(p.without_strides(), part); }

// q, k or v among the tensors of a problem; dq, dk or dv with `prefix` "d".
std::string tensor_of_part(const Problem& p, int part, const char* prefix = "");

// o [n, t, c] and lse [n, heads, t] in double precision.
struct Attended {
  std::vector<double> o;
  std::vector<double> lse;
};
Attended attend(const Problem& p, const HostTensors& inputs);

}  // namespace ladder::attention
