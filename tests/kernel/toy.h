// A pass that no layer has, with everything that a pass may have: a tensor that is read and then overwritten, integers,
// traffic of its own, kernels with plans.
//
//     y[i] = w[i] + label[i],  w[i] <- w[i] - rate g[i],  i in 0..n-1, rate 0.5
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::toy {

struct Problem {
  int n = 1;
  Dtype dtype = Dtype::f32;
  std::string str() const;
  static Problem parse(std::string_view line);
  static Problem random(std::uint64_t seed);
};

struct Step {
  static constexpr const char* kLayer = "toy";
  static constexpr const char* kName = "step";
  static constexpr bool kDefault = true;
  using Problem = toy::Problem;

  struct Tensors {
    float* w;          // [n] fp32, before and after
    const float* g;    // [n] fp32
    const int* label;  // [n] int32
    float* y;          // [n] fp32
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p) { return 3.0 * p.n; }
  static Traffic traffic(const Problem& p) { return {.read_bytes = 1.0 * p.n, .write_bytes = 2.0 * p.n}; }
};

// Versions, registered under these numbers: right with two plans, one that leaves w as it was, one that adds to y.
inline constexpr int kRight = 1;
inline constexpr int kForgetsW = 2;
inline constexpr int kAccumulates = 3;

}  // namespace ladder::toy
