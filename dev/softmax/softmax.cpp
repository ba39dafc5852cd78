#include "dev/softmax/softmax.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

#include "core/parallel.h"
#include "core/problem_line.h"

namespace ladder::softmax {
namespace {

// Mean of the rows of x, so far from zero that fp32 has no e^x, nor enough bits for a sum of e^-x.
constexpr double kRowMean = 100;

// Deviation of x: with 2, a row's exponentials differ by orders of magnitude.
constexpr double kDeviation = 2;

TensorSpec matrix(const char* name, Role role, const Problem& p) {
  return {.name = name,
          .role = role,
          .dtype = p.dtype,
          .shape = {p.m, p.n},
          .layout = "mn",
          .reduction_length = role == Role::output ? p.n : 1};
}

TensorSpec logits(const char* name, const Problem& p, double mean) {
  TensorSpec drawn = matrix(name, Role::input, p);
  drawn.mean = mean;
  drawn.stddev = kDeviation;
  return drawn;
}

// Calls body(row index, its elements) for every row, from several threads.
void for_rows(const Problem& p, std::vector<float>& matrix, const auto& body) {
  parallel_for(p.m, 1 + (1 << 14) / p.n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      body(row, std::span(matrix).subspan(static_cast<std::size_t>(row * p.n), static_cast<std::size_t>(p.n)));
    }
  });
}

}  // namespace

std::string Problem::str() const { return 'm' + std::to_string(m) + ' ' + 'n' + std::to_string(n) + ' ' + name(dtype); }

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "m64 n64 [fp32|bf16|fp16]");
  // Kernels index elements with 32 bits.
  constexpr int kMaxElements = 1 << 30;
  Problem p;
  p.m = static_cast<int>(line.size("m", 1, kMaxElements));
  p.n = static_cast<int>(line.size("n", 1, kMaxColumns));
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  if (p.elements() > kMaxElements) line.fail("a tensor of more than 2^30 elements");
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones. A softmax of one column is 1, whatever x is.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  return {.m = draw(20), .n = 1 + draw(random() % 8 == 0 ? 20000 : 500)};
}

std::vector<TensorSpec> Forward::tensors(const Problem& p) {
  return {logits("x", p, kRowMean), matrix("y", Role::output, p)};
}

void Forward::derive(const Problem& p, HostTensors& inputs) {
  for_rows(p, inputs["x"], [&](std::int64_t row, std::span<float> x) {
    for (float& value : x) value = std::copysign(value, row % 2 == 0 ? 1.0f : -1.0f);
  });
}

double Forward::flops(const Problem& p) { return 5.0 * static_cast<double>(p.elements()); }

std::vector<TensorSpec> Backward::tensors(const Problem& p) {
  return {logits("y", p, 0), matrix("dy", Role::input, p), matrix("dx", Role::output, p)};
}

void Backward::derive(const Problem& p, HostTensors& inputs) {
  for_rows(p, inputs["y"], [&](std::int64_t, std::span<float> y) {
    const auto [least, greatest] = std::ranges::minmax(y);
    if (least >= 0 && greatest <= 1) return;  // derived already
    const double max = greatest;
    double sum = 0;
    for (const float value : y) sum += std::exp(value - max);
    for (float& value : y) value = round_to(p.dtype, static_cast<float>(std::exp(value - max) / sum));
  });
}

double Backward::flops(const Problem& p) { return 4.0 * static_cast<double>(p.elements()); }

}  // namespace ladder::softmax
