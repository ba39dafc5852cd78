// concat: a feature map and a skip connection side by side in the channels, as the up half of a diffusion U-Net joins them
// (PyTorch's cat([a, b], dim=1)). For every pixel of every image:
//
//     join  y[...][i] = a[...][i] for i < c,  b[...][i - c] from there on
//
//     a  [n, h, w, c]      b  [n, h, w, k]      y  [n, h, w, c + k]      NHWC
//
// Its gradient is no pass of its own: gemm's dgrad stores it in two tensors (the word `split`).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::concat {

struct Problem {
  int n = 1;  // images
  int h = 1;  // rows
  int w = 1;  // columns
  int c = 1;  // channels of a
  int k = 1;  // channels of b
  Dtype dtype = Dtype::f32;

  // "n32 h64 w64 c128 k64 bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  std::int64_t pixels() const { return std::int64_t{n} * h * w; }
  std::int64_t elements() const { return pixels() * (c + k); }  // of y
  bool operator==(const Problem&) const = default;

  // Any small problem whose answers are no copies; fp32.
  static Problem random(std::uint64_t seed);
};

struct Join {
  static constexpr const char* kLayer = "concat";
  static constexpr const char* kName = "join";
  static constexpr bool kDefault = true;
  using Problem = concat::Problem;

  struct Tensors {
    const void* a;  // [n, h, w, c] dtype
    const void* b;  // [n, h, w, k] dtype
    void* y;        // [n, h, w, c + k] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.a = at["a"], .b = at["b"], .y = at["y"]}; }
  static double flops(const Problem& p) { return double(p.elements()); }  // a convention: nothing is computed
};

}  // namespace ladder::concat
