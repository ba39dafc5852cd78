// silu: the sigmoid linear unit (Elfwing et al. 2017) where it stands alone, after a linear layer of the time embedding.
// (Behind a normalisation it is part of that: dev/groupnorm.) For every element:
//
//     forward   y = x s(x),   s(x) = 1 / (1 + e^-x)
//     backward  dx = dy (s(x) + x s(x) (1 - s(x)))
//
//     x, y, dx, dy  [n, c]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::silu {

struct Problem {
  int n = 1;  // rows
  int c = 1;  // columns
  Dtype dtype = Dtype::f32;

  // "n32 c256 bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  std::int64_t elements() const { return std::int64_t{n} * c; }
  bool operator==(const Problem&) const = default;

  // Any small problem; fp32.
  static Problem random(std::uint64_t seed);
};

struct Forward {
  static constexpr const char* kLayer = "silu";
  static constexpr const char* kName = "forward";
  static constexpr bool kDefault = true;
  static constexpr bool kExact = false;
  using Problem = silu::Problem;

  struct Tensors {
    const void* x;  // [n, c] dtype
    void* y;        // [n, c] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.x = at["x"], .y = at["y"]}; }
  static double flops(const Problem& p);  // four an element: a convention
};

struct Backward {
  static constexpr const char* kLayer = "silu";
  static constexpr const char* kName = "backward";
  static constexpr bool kExact = false;
  using Problem = silu::Problem;

  struct Tensors {
    const void* x;   // [n, c] dtype
    const void* dy;  // [n, c] dtype
    void* dx;        // [n, c] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.x = at["x"], .dy = at["dy"], .dx = at["dx"]}; }
  static double flops(const Problem& p);  // eight an element: a convention
};

}  // namespace ladder::silu
