#include "dev/conv3x3/conv3x3.h"

#include <cmath>

#include "core/problem_line.h"

namespace ladder::conv3x3 {

std::string Problem::str() const {
  auto word = [](char letter, int value) { return letter + std::to_string(value) + ' '; };
  return word('n', n) + word('h', h) + word('w', w) + word('c', c) + word('k', k) + (bias ? "bias " : "") + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "n32 h64 w64 c64 k64 [bias] [fp32|tf32|bf16|fp16]");
  constexpr int kMost = 1 << 20;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMost));
  p.h = static_cast<int>(line.size("h", 1, kMost));
  p.w = static_cast<int>(line.size("w", 1, kMost));
  p.c = static_cast<int>(line.size("c", 1, kMost));
  p.k = static_cast<int>(line.size("k", 1, kMost));
  p.bias = line.flag("bias");
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  // Kernels index elements with 32-bit signed integers.
  constexpr double kMostElements = 2147483647.0;
  const double pixels = double(p.n) * p.h * p.w;
  if (pixels * p.c > kMostElements || pixels * p.k > kMostElements || 9.0 * p.c * p.k > kMostElements) {
    line.fail("a tensor of more than 2^31 - 1 elements");
  }
  return p;
}

std::vector<TensorSpec> Fprop::tensors(const Problem& p) {
  const Dtype output = p.dtype == Dtype::tf32 ? Dtype::f32 : p.dtype;
  // He et al. 2015, eq. 10 without the factor 2: outputs of unit variance from inputs of unit variance.
  const double w_stddev = 1.0 / std::sqrt(9.0 * p.c);
  std::vector<TensorSpec> specs = {
      {.name = "x", .role = Role::input, .dtype = p.dtype, .shape = {p.n, p.h, p.w, p.c}, .layout = "nhwc"},
      {.name = "w",
       .role = Role::input,
       .dtype = p.dtype,
       .shape = {p.k, 3, 3, p.c},
       .layout = "krsc",
       .stddev = w_stddev}};
  if (p.bias) {
    specs.push_back({.name = "bias", .role = Role::input, .dtype = Dtype::f32, .shape = {p.k}, .layout = "k"});
  }
  specs.push_back(
      {.name = "y", .role = Role::output, .dtype = output, .shape = {p.n, p.h, p.w, p.k}, .layout = "nhwk"});
  return specs;
}

Fprop::Tensors Fprop::bind(const Problem& p, void* const* pointers) {
  return {.x = pointers[0],
          .w = pointers[1],
          .bias = p.bias ? static_cast<const float*>(pointers[2]) : nullptr,
          .y = pointers[p.bias ? 3 : 2]};
}

double Fprop::flops(const Problem& p) { return 2.0 * 9.0 * p.c * p.k * static_cast<double>(p.pixels()); }

std::int64_t Fprop::reduction_length(const Problem& p) { return std::int64_t{9} * p.c + (p.bias ? 1 : 0); }

}  // namespace ladder::conv3x3
