// Problems for the cheats of attention, and element counts of its tensors.
#pragma once

#include <string>
#include <vector>

#include "core/numeric.h"
#include "dev/attention/attention.h"

namespace ladder::attention {

// Problems: whole tiles; tails with several images and an odd number of heads; a wide head; enough tokens to expose
// 16-bit sums.
inline std::vector<std::string> wrong_problems() {
  return {"n1 t48 heads2 d32", "n2 t21 heads3 d32", "n1 t13 heads2 d64", "n1 t200 heads1 d32"};
}

inline long long size_o(const Problem& p) { return p.tokens() * p.heads * p.d; }
inline long long size_qkv(const Problem& p) { return 3 * size_o(p); }
inline long long size_lse(const Problem& p) { return p.tokens() * p.heads; }

// Indices of an element of o, or of one part of qkv.
struct Element {
  long long image;
  int token;
  int head;
  int channel;
};
__device__ inline Element element_of_o(const Problem& p, long long i) {
  return {.image = i / p.d / p.heads / p.t,
          .token = static_cast<int>(i / p.d / p.heads % p.t),
          .head = static_cast<int>(i / p.d % p.heads),
          .channel = static_cast<int>(i % p.d)};
}
__device__ inline long long index_in_qkv(const Problem& p, const Element& at, int token, int part, int channel) {
  return (((at.image * p.t + token) * p.heads + at.head) * 3 + part) * p.d + channel;
}

// Index in layout [3][heads][d] of the element at index i in qkv's layout [heads][3][d]. Equal for a single head.
struct ThreeHeadsD {
  __device__ long long operator()(const Problem& p, long long i) const {
    const long long head = i / p.d / 3 % p.heads;
    const long long part = i / p.d % 3;
    return i + (part * p.heads + head - head * 3 - part) * p.d;
  }
};

// bf16(): round a sum to bf16. whole_tiles(): tokens in whole tiles of 16, or t if there is no whole tile.
__device__ inline float bf16(float x) { return to_float(from_float<__nv_bfloat16>(x)); }
__device__ inline int whole_tiles(int t) { return t < 16 ? t : t / 16 * 16; }

}  // namespace ladder::attention
