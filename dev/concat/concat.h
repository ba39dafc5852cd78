// concat: a feature map and a skip connection side by side in the channels, as the up half of a diffusion U-Net joins them,
// and its gradient. For every pixel of every image:
//
//     join       y[...][i] = a[...][i] for i < c,  b[...][i - c] from there on
//     split      da[...][i] = dy[...][i],  db[...][j] = dy[...][c + j]
//     split_add  da[...][i] = dy[...][i],  db[...][j] = dy[...][c + j] + e[...][j]
//
//     a, da  [n, h, w, c]      b, db, e  [n, h, w, k]      y, dy  [n, h, w, c + k]      NHWC
//
// split_add's e is the gradient that the skip connection has from its other consumer: both come together in one pass over
// memory. (PyTorch's cat([a, b], dim=1), and its gradient.)
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
  static double flops(
      const Problem& p);  // one an element of y in all passes: a convention, as nothing but moving is done
};

struct Split {
  static constexpr const char* kLayer = "concat";
  static constexpr const char* kName = "split";
  using Problem = concat::Problem;

  struct Tensors {
    const void* dy;  // [n, h, w, c + k] dtype
    void* da;        // [n, h, w, c] dtype
    void* db;        // [n, h, w, k] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.dy = at["dy"], .da = at["da"], .db = at["db"]}; }
  static double flops(const Problem& p) { return Join::flops(p); }
};

struct SplitAdd {
  static constexpr const char* kLayer = "concat";
  static constexpr const char* kName = "split_add";
  using Problem = concat::Problem;

  struct Tensors {
    const void* dy;  // [n, h, w, c + k] dtype
    const void* e;   // [n, h, w, k] dtype
    void* da;        // [n, h, w, c] dtype
    void* db;        // [n, h, w, k] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.dy = at["dy"], .e = at["e"], .da = at["da"], .db = at["db"]}; }
  static double flops(const Problem& p) { return Join::flops(p); }
};

}  // namespace ladder::concat
