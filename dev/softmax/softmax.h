// softmax over the last dimension of a matrix, and its gradient. For every row:
//
//     forward   y[i] = e^(x[i] - max) / sum over j of e^(x[j] - max),   max the greatest of the row's x
//     backward  dx[i] = y[i] (dy[i] - sum over j of y[j] dy[j])
//
//     x, y, dx, dy  [m, n]
//
// Without the max, e^x overflows from x = 89 on. So every other row of x is drawn about 100, and the rest about -100: a kernel
// that subtracts no max, or one that begins at zero, is wrong in every problem.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::softmax {

constexpr int kMaxColumns = 1 << 20;

struct Problem {
  int m = 1;  // rows
  int n = 1;  // columns, over which the softmax is taken
  Dtype dtype = Dtype::f32;

  // "m64 n64 bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  std::int64_t elements() const { return std::int64_t{m} * n; }
  bool operator==(const Problem&) const = default;

  // Any small problem; fp32.
  static Problem random(std::uint64_t seed);
};

struct Forward {
  static constexpr const char* kLayer = "softmax";
  static constexpr const char* kName = "forward";
  static constexpr bool kDefault = true;
  static constexpr bool kExact = false;
  using Problem = softmax::Problem;

  struct Tensors {
    const void* x;  // [m, n] dtype
    void* y;        // [m, n] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.x = at["x"], .y = at["y"]}; }
  static void derive(const Problem& p,
                     HostTensors& inputs);  // turns every other row of x to -100; again, it changes nothing
  static double flops(const Problem& p);    // five an element: a convention
};

struct Backward {
  static constexpr const char* kLayer = "softmax";
  static constexpr const char* kName = "backward";
  static constexpr bool kExact = false;
  using Problem = softmax::Problem;

  struct Tensors {
    const void* y;   // [m, n] dtype
    const void* dy;  // [m, n] dtype
    void* dx;        // [m, n] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.y = at["y"], .dy = at["dy"], .dx = at["dx"]}; }
  static void derive(const Problem& p, HostTensors& inputs);  // y becomes the softmax of what was drawn; likewise
  static double flops(const Problem& p);                      // four an element: a convention
};

}  // namespace ladder::softmax
