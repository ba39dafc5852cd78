#include "dev/resample/resample.h"

#include <random>

#include "core/problem_line.h"

namespace ladder::resample {
namespace {

TensorSpec large(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = p.dtype, .shape = {p.n, p.h, p.w, p.c}, .layout = "nhwc"};
}

TensorSpec small(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = p.dtype, .shape = {p.n, p.h / 2, p.w / 2, p.c}, .layout = "nhwc"};
}

TensorSpec sum_of_four(TensorSpec output) {
  output.reduction_length = 4;
  return output;
}

}  // namespace

std::string Problem::str() const {
  const auto word = [](char letter, int value) { return letter + std::to_string(value) + ' '; };
  return word('n', n) + word('h', h) + word('w', w) + word('c', c) + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "n32 h64 w64 c64 [fp32|bf16|fp16]");
  constexpr int kMax = 1 << 20;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.h = static_cast<int>(line.size("h", 2, kMax));
  p.w = static_cast<int>(line.size("w", 2, kMax));
  p.c = static_cast<int>(line.size("c", 1, kMax));
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  if (p.h % 2 != 0 || p.w % 2 != 0) line.fail("h and w must be even");
  // Kernels index elements with 32 bits.
  constexpr double kMaxElements = 2147483647.0;
  if (double(p.n) * p.h * p.w * p.c > kMaxElements) line.fail("a tensor of more than 2^31 - 1 elements");
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  // Draw at least 4x4 pixels: with 2x2 or 2x4 pixels, half of upsampling's output is a copy of its input.
  return {.n = draw(4), .h = 2 + 2 * draw(6), .w = 2 + 2 * draw(6), .c = draw(72)};
}

std::vector<TensorSpec> Pool::tensors(const Problem& p) {
  return {large("x", Role::input, p), sum_of_four(small("y", Role::output, p))};
}

double Pool::flops(const Problem& p) { return static_cast<double>(p.large()); }

std::vector<TensorSpec> PoolBackward::tensors(const Problem& p) {
  return {small("dy", Role::input, p), large("dx", Role::output, p)};
}

std::vector<TensorSpec> Upsample::tensors(const Problem& p) {
  return {small("x", Role::input, p), large("y", Role::output, p)};
}

std::vector<TensorSpec> UpsampleBackward::tensors(const Problem& p) {
  return {large("dy", Role::input, p), sum_of_four(small("dx", Role::output, p))};
}

}  // namespace ladder::resample
