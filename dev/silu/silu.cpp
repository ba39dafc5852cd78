#include "dev/silu/silu.h"

#include <random>

#include "core/problem_line.h"

namespace ladder::silu {
namespace {

TensorSpec matrix(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = p.dtype, .shape = {p.n, p.c}, .layout = "nc"};
}

// A deviation of 2 reaches both ends of the sigmoid.
TensorSpec x_of(const Problem& p) {
  TensorSpec x = matrix("x", Role::input, p);
  x.stddev = 2;
  return x;
}

}  // namespace

std::string Problem::str() const { return 'n' + std::to_string(n) + " c" + std::to_string(c) + ' ' + name(dtype); }

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "n32 c256 [fp32|bf16|fp16]");
  constexpr int kMax = 1 << 26;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.c = static_cast<int>(line.size("c", 1, kMax));
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  // Kernels index elements with 32 bits.
  constexpr double kMaxElements = 2147483647.0;
  if (double(p.n) * p.c > kMaxElements) line.fail("a tensor of more than 2^31 - 1 elements");
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  return {.n = 1 + draw(40), .c = 2 + draw(300)};
}

std::vector<TensorSpec> Forward::tensors(const Problem& p) { return {x_of(p), matrix("y", Role::output, p)}; }

double Forward::flops(const Problem& p) { return 4.0 * static_cast<double>(p.elements()); }

std::vector<TensorSpec> Backward::tensors(const Problem& p) {
  return {x_of(p), matrix("dy", Role::input, p), matrix("dx", Role::output, p)};
}

double Backward::flops(const Problem& p) { return 8.0 * static_cast<double>(p.elements()); }

}  // namespace ladder::silu
