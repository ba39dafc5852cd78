// embedding: the sinusoidal embedding of a diffusion model's time steps, as guided-diffusion's timestep_embedding computes it.
// For every image n and frequency j < half = c / 2 (rounded down):
//
//     freq[j] = exp(-log(10000) * j / half)
//     y[n][j] = cos(t[n] * freq[j]),  y[n][half + j] = sin(t[n] * freq[j]),  y[n][c - 1] = 0 where c is odd
//
//     t  [n]  int32, or fp32 where the problem says "real"          y  [n, c]
//
// All of it is fp32, product and quotient of the exponent one after the other: an angle of 999 rad has a rounding error of
// 3e-5 before any cosine is taken of it, and approximations for small angles (-use_fast_math) would be wrong by far more.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::embedding {

inline constexpr int kTimesteps = 1000;  // those of training: 0 to 999

struct Problem {
  int n = 1;                 // images
  int c = 2;                 // channels
  bool real = false;         // whether time steps are fp32
  Dtype dtype = Dtype::f32;  // of y

  // "n32 c64 fp32", "n4 c33 real bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  int half() const { return c / 2; }
  std::int64_t elements() const { return std::int64_t{n} * c; }
  bool operator==(const Problem&) const = default;

  // Any small problem; fp32.
  static Problem random(std::uint64_t seed);
};

struct Timestep {
  static constexpr const char* kLayer = "embedding";
  static constexpr const char* kName = "timestep";
  static constexpr bool kDefault = true;
  static constexpr bool kExact = false;
  using Problem = embedding::Problem;

  struct Tensors {
    const void* t;  // [n] int32 or fp32
    void* y;        // [n, c] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.t = at["t"], .y = at["y"]}; }
  static double flops(const Problem& p);  // sixteen an element: a convention
  // The first and the last integer time step are 0 and 999.
  static void derive(const Problem& p, HostTensors& inputs);
};

}  // namespace ladder::embedding
