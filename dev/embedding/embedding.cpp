#include "dev/embedding/embedding.h"

#include <random>

#include "core/problem_line.h"

namespace ladder::embedding {

std::string Problem::str() const {
  return 'n' + std::to_string(n) + " c" + std::to_string(c) + (real ? " real " : " ") + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "n32 c64 [real] [fp32|bf16|fp16]");
  constexpr int kMax = 1 << 20;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.c = static_cast<int>(line.size("c", 2, kMax));
  p.real = line.flag("real");
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
  return {.n = 1 + draw(40), .c = 3 + draw(150), .real = random() % 2 == 0};
}

std::vector<TensorSpec> Timestep::tensors(const Problem& p) {
  TensorSpec t{.name = "t", .role = Role::input, .dtype = Dtype::i32, .shape = {p.n}, .layout = "n"};
  t.high = kTimesteps - 1;
  if (p.real) {
    t.dtype = Dtype::f32;
    t.mean = 500;
    t.stddev = 200;
  }
  return {t, {.name = "y", .role = Role::output, .dtype = p.dtype, .shape = {p.n, p.c}, .layout = "nc"}};
}

double Timestep::flops(const Problem& p) { return 16.0 * static_cast<double>(p.elements()); }

void Timestep::derive(const Problem& p, HostTensors& inputs) {
  if (p.real || p.n < 2) return;
  inputs["t"].front() = 0;
  inputs["t"].back() = kTimesteps - 1;
}

}  // namespace ladder::embedding
