#include "dev/layernorm/layernorm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/parallel.h"
#include "core/problem_line.h"

namespace ladder::layernorm {
namespace {

TensorSpec matrix(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = p.dtype, .shape = {p.m, p.n}, .layout = "mn"};
}

// A deviation of 1 would make x its own answer. Around a large mean it is at least four units of rounding.
TensorSpec normalised(const Problem& p) {
  TensorSpec x = matrix("x", Role::input, p);
  x.mean = p.mean;
  x.stddev = std::max(2.0, 4 * unit_roundoff(p.dtype) * p.mean);
  return x;
}

TensorSpec per_column(const char* name, Role role, const Problem& p) {
  return {.name = name,
          .role = role,
          .dtype = Dtype::f32,
          .shape = {p.n},
          .layout = "n",
          .drawn = p.dtype};  // so that a library whose parameters have x's type can be compared
}

TensorSpec scale(const Problem& p) {
  TensorSpec gamma = per_column("gamma", Role::input, p);
  gamma.mean = 1;
  return gamma;
}

TensorSpec per_row(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = Dtype::f32, .shape = {p.m}, .layout = "m"};
}

TensorSpec sum_of(std::int64_t terms, TensorSpec output) {
  output.reduction_length = terms;
  return output;
}

// Calls body(row index) for every row, from several threads.
void for_rows(const Problem& p, const auto& body) {
  parallel_for(p.m, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

// Fold of a row of x drawn about zero, to give it a mean and a deviation: values below `edge` are reflected there.
struct Fold {
  float edge;
  float middle;  // roughly the row's mean
};
Fold fold_of(std::int64_t row) {
  constexpr Fold kFolds[] = {{0, 1.5f}, {2, 4}, {4, 8}};
  return kFolds[row % std::ssize(kFolds)];
}

// Fold the rows of x. Rows about a large mean stay as drawn.
void fold_rows(const Problem& p, std::vector<float>& x) {
  if (p.mean != 0) return;
  for_rows(p, [&](std::int64_t row) {
    const float edge = fold_of(row).edge;
    for (std::int64_t i = row * p.n; i < (row + 1) * p.n; ++i) {
      if (x[i] < edge) x[i] = round_to(p.dtype, 2 * edge - x[i]);
    }
  });
}

}  // namespace

std::string Problem::str() const {
  return fmt::format("m{} n{} {}{}{}", m, n, mean != 0 ? fmt::format("mean{} ", mean) : "",
                     eps != Problem{}.eps ? fmt::format("eps{} ", eps) : "", name(dtype));
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "m8192 n1024 [mean20000] [eps1e-6] [fp32|bf16|fp16]");
  // Kernels index elements with 32 bits.
  constexpr int kMax = 1 << 30;
  constexpr int kMaxMean = 30000;  // fp16 ends at 65504
  Problem p;
  p.m = static_cast<int>(line.size("m", 1, kMax));
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.mean = static_cast<int>(line.size_or("mean", 0, 0, kMaxMean));
  p.eps = line.positive_or("eps", p.eps);
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  if (p.elements() > kMax) line.fail("a tensor of more than 2^30 elements");
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  // A row of one element is normalised to zero, whatever it is.
  Problem p{.m = 1 + draw(24), .n = 1 + draw(600)};
  if (random() % 4 == 0) p.n = 4 * draw(1500) + 4;
  if (random() % 8 == 0) p.mean = 20000;
  if (random() % 4 == 0) p.eps = random() % 2 == 0 ? 1e-6f : 1e-3f;
  return p;
}

std::vector<TensorSpec> Forward::tensors(const Problem& p) {
  return {normalised(p),
          scale(p),
          per_column("beta", Role::input, p),
          sum_of(p.n, matrix("y", Role::output, p)),
          sum_of(p.n, per_row("mean", Role::output, p)),
          sum_of(p.n, per_row("rstd", Role::output, p))};
}

Forward::Tensors Forward::bind(const Pointers& at) {
  return {.x = at["x"],
          .gamma = at.get<const float>("gamma"),
          .beta = at.get<const float>("beta"),
          .y = at["y"],
          .mean = at.get<float>("mean"),
          .rstd = at.get<float>("rstd")};
}

void Forward::derive(const Problem& p, HostTensors& inputs) { fold_rows(p, inputs["x"]); }

std::vector<TensorSpec> Backward::tensors(const Problem& p) {
  return {normalised(p),
          matrix("dy", Role::input, p),
          scale(p),
          per_row("mean", Role::input, p),
          per_row("rstd", Role::input, p),
          sum_of(p.n, matrix("dx", Role::output, p)),
          sum_of(p.m, per_column("dgamma", Role::output, p)),
          sum_of(p.m, per_column("dbeta", Role::output, p))};
}

Backward::Tensors Backward::bind(const Pointers& at) {
  return {.x = at["x"],
          .dy = at["dy"],
          .gamma = at.get<const float>("gamma"),
          .mean = at.get<const float>("mean"),
          .rstd = at.get<const float>("rstd"),
          .dx = at["dx"],
          .dgamma = at.get<float>("dgamma"),
          .dbeta = at.get<float>("dbeta")};
}

void Backward::derive(const Problem& p, HostTensors& inputs) {
  std::vector<float>& x = inputs["x"];
  std::vector<float>& dy = inputs["dy"];
  fold_rows(p, x);
  for_rows(p, [&](std::int64_t row) {
    const float middle = p.mean != 0 ? static_cast<float>(p.mean) : fold_of(row).middle;
    for (std::int64_t i = row * p.n; i < (row + 1) * p.n; ++i) {
      if (x[i] > middle) dy[i] = std::abs(dy[i]);
    }
  });
  const Statistics s = statistics(p, x);
  inputs["mean"].assign(s.mean.begin(), s.mean.end());
  inputs["rstd"].assign(s.rstd.begin(), s.rstd.end());
}

Statistics statistics(const Problem& p, const std::vector<float>& x) {
  Statistics s{.mean = std::vector<double>(p.m), .rstd = std::vector<double>(p.m)};
  for_rows(p, [&](std::int64_t row) {
    const float* const first = &x[row * p.n];
    double sum = 0;
    for (int i = 0; i < p.n; ++i) sum += first[i];
    const double mean = sum / p.n;
    double squares = 0;
    for (int i = 0; i < p.n; ++i) squares += (first[i] - mean) * (first[i] - mean);
    s.mean[row] = mean;
    s.rstd[row] = 1 / std::sqrt(squares / p.n + static_cast<double>(p.eps));
  });
  return s;
}

}  // namespace ladder::layernorm
