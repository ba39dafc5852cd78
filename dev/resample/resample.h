// resample: halving and doubling an image, as a diffusion U-Net does it between its levels, and their gradients. h and w
// are the sizes of the larger image, both even. For every image n, pixel (p, q) of the smaller one and channel c:
//
//     pool               y[n][p][q][c] = (sum of x[n][2p+i][2q+j][c] over i, j in 0..1) / 4
//     pool_backward      dx[n][2p+i][2q+j][c] = dy[n][p][q][c] / 4
//     upsample           y[n][2p+i][2q+j][c] = x[n][p][q][c]
//     upsample_backward  dx[n][p][q][c] = sum of dy[n][2p+i][2q+j][c] over i, j in 0..1
//
//     pool: x, dx [n, h, w, c], y, dy [n, h/2, w/2, c]      upsample: x, dx [n, h/2, w/2, c], y, dy [n, h, w, c]      NHWC
//
// (PyTorch's avg_pool2d(x, 2) and interpolate(x, scale_factor=2, mode="nearest"), and their gradients.)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::resample {

struct Problem {
  int n = 1;  // images
  int h = 2;  // rows of the larger image, even
  int w = 2;  // columns of the larger image, even
  int c = 1;  // channels
  Dtype dtype = Dtype::f32;

  // "n32 h64 w64 c64 bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  std::int64_t large() const { return std::int64_t{n} * h * w * c; }  // elements
  std::int64_t small() const { return large() / 4; }
  bool operator==(const Problem&) const = default;

  // Any small problem whose answers are no copies; fp32.
  static Problem random(std::uint64_t seed);
};

struct Pool {
  static constexpr const char* kLayer = "resample";
  static constexpr const char* kName = "pool";
  static constexpr bool kDefault = true;
  using Problem = resample::Problem;

  struct Tensors {
    const void* x;  // [n, h, w, c] dtype
    void* y;        // [n, h/2, w/2, c] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.x = at["x"], .y = at["y"]}; }
  static double flops(const Problem& p);  // an operation an element of the larger image, in all four passes
};

struct PoolBackward {
  static constexpr const char* kLayer = "resample";
  static constexpr const char* kName = "pool_backward";
  using Problem = resample::Problem;

  struct Tensors {
    const void* dy;  // [n, h/2, w/2, c] dtype
    void* dx;        // [n, h, w, c] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.dy = at["dy"], .dx = at["dx"]}; }
  static double flops(const Problem& p) { return Pool::flops(p); }
};

struct Upsample {
  static constexpr const char* kLayer = "resample";
  static constexpr const char* kName = "upsample";
  using Problem = resample::Problem;

  struct Tensors {
    const void* x;  // [n, h/2, w/2, c] dtype
    void* y;        // [n, h, w, c] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.x = at["x"], .y = at["y"]}; }
  static double flops(const Problem& p) { return Pool::flops(p); }
};

struct UpsampleBackward {
  static constexpr const char* kLayer = "resample";
  static constexpr const char* kName = "upsample_backward";
  using Problem = resample::Problem;

  struct Tensors {
    const void* dy;  // [n, h, w, c] dtype
    void* dx;        // [n, h/2, w/2, c] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.dy = at["dy"], .dx = at["dx"]}; }
  static double flops(const Problem& p) { return Pool::flops(p); }
};

}  // namespace ladder::resample
