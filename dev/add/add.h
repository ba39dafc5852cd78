// add: the sums of a residual block of a diffusion U-Net. For every image n, pixel p and channel c:
//
//     residual            y[n][p][c] = a[n][p][c] + b[n][p][c]
//     embedding           y[n][p][c] = x[n][p][c] + e[n][c]
//     embedding_backward  de[n][c] = sum over p of dy[n][p][c]
//
//     a, b, x, y, dy  [n, h, w, c]  NHWC          e, de  [n, c]  fp32
//
// The gradients of a residual sum with respect to a and b, and of embedding's with respect to x, are dy itself; two
// gradients of one tensor are added by residual. e is fp32 like the linear layer before it, which has only a row per
// image. de is fp32 too: it is a sum of thousands of terms, of which further sums are taken.
//
// The linear layers of all residual blocks can be computed as one: then e and de are c columns, from `first` on, of a
// matrix [n, pitch]. The other columns of de stay as they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::add {

struct Problem {
  int n = 1;                 // images
  int h = 1;                 // rows
  int w = 1;                 // columns
  int c = 1;                 // channels
  int pitch = 0;             // columns of the matrix that e is part of; 0: c. Residual ignores it.
  int first = 0;             // column of e
  Dtype dtype = Dtype::f32;  // of everything but e and de

  // "n32 h64 w64 c64 bf16", "n32 h8 w8 c256 pitch3712 first1920 bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  int pixels() const { return h * w; }  // of an image
  int row() const { return pitch == 0 ? c : pitch; }
  // Returns true if four columns of e can be loaded at a time.
  bool whole_quads() const { return row() % 4 == 0 && first % 4 == 0; }
  std::int64_t elements() const { return std::int64_t{n} * h * w * c; }
  bool operator==(const Problem&) const = default;

  // Returns a small fp32 problem whose outputs are no copies of its inputs.
  static Problem random(std::uint64_t seed);
};

struct Residual {
  static constexpr const char* kLayer = "add";
  static constexpr const char* kName = "residual";
  static constexpr bool kDefault = true;
  using Problem = add::Problem;

  struct Tensors {
    const void* a;  // [n, h, w, c] dtype
    const void* b;  // [n, h, w, c] dtype
    void* y;        // [n, h, w, c] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.a = at["a"], .b = at["b"], .y = at["y"]}; }
  static double flops(const Problem& p);  // one per element, in all three passes
};

struct Embedding {
  static constexpr const char* kLayer = "add";
  static constexpr const char* kName = "embedding";
  using Problem = add::Problem;

  struct Tensors {
    const void* x;   // [n, h, w, c] dtype
    const float* e;  // [n, pitch]
    void* y;         // [n, h, w, c] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.x = at["x"], .e = at.get<const float>("e"), .y = at["y"]}; }
  static double flops(const Problem& p) { return Residual::flops(p); }
  static Traffic traffic(const Problem& p);
};

struct EmbeddingBackward {
  static constexpr const char* kLayer = "add";
  static constexpr const char* kName = "embedding_backward";
  using Problem = add::Problem;

  struct Tensors {
    const void* dy;  // [n, h, w, c] dtype
    float* de;       // [n, pitch]
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.dy = at["dy"], .de = at.get<float>("de")}; }
  static double flops(const Problem& p) { return Residual::flops(p); }
  static Traffic traffic(const Problem& p);
};

}  // namespace ladder::add
