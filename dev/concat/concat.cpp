#include "dev/concat/concat.h"

#include <random>

#include "core/problem_line.h"

namespace ladder::concat {
namespace {

TensorSpec image(const char* name, Role role, const Problem& p, int channels) {
  return {.name = name, .role = role, .dtype = p.dtype, .shape = {p.n, p.h, p.w, channels}, .layout = "nhwc"};
}

}  // namespace

std::string Problem::str() const {
  const auto word = [](char letter, int value) { return letter + std::to_string(value) + ' '; };
  return word('n', n) + word('h', h) + word('w', w) + word('c', c) + word('k', k) + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "n32 h64 w64 c128 k64 [fp32|bf16|fp16]");
  constexpr int kMax = 1 << 20;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.h = static_cast<int>(line.size("h", 1, kMax));
  p.w = static_cast<int>(line.size("w", 1, kMax));
  p.c = static_cast<int>(line.size("c", 1, kMax));
  p.k = static_cast<int>(line.size("k", 1, kMax));
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  // Kernels index elements with 32 bits.
  constexpr double kMaxElements = 2147483647.0;
  if (double(p.n) * p.h * p.w * (double(p.c) + p.k) > kMaxElements) {
    line.fail("a tensor of more than 2^31 - 1 elements");
  }
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  // A single pixel's y is a copy of a and b: there must be others.
  return {.n = draw(4), .h = 2 + draw(12), .w = 1 + draw(12), .c = draw(72), .k = draw(72)};
}

std::vector<TensorSpec> Join::tensors(const Problem& p) {
  return {image("a", Role::input, p, p.c), image("b", Role::input, p, p.k), image("y", Role::output, p, p.c + p.k)};
}

}  // namespace ladder::concat
