#include "dev/gemm/gemm.h"

#include <cmath>
#include <random>

#include "core/problem_line.h"
#include "dev/common/layer_batch.h"

namespace ladder::gemm {

std::string Problem::str() const {
  auto word = [](char letter, int value) { return letter + std::to_string(value) + ' '; };
  return word('m', m) + word('n', n) + word('k', k) + (bias ? "bias " : "") + (params16 ? "params16 " : "") +
         (residual ? "residual " : "") + (silu ? "silu " : "") + (accumulate ? "accumulate " : "") +
         (split > 0 ? "split" + std::to_string(split) + ' ' : "") +
         (batch > 1 ? "batch" + std::to_string(batch) + ' ' : "") + (allow_tf32 ? "allow_tf32 " : "") + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text,
                   "m131072 n64 k192 [bias] [params16] [residual] [silu] [accumulate] [split128] [batch6] [allow_tf32] "
                   "[fp32|tf32|bf16|fp16]");
  constexpr int kMax = 1 << 24;
  Problem p;
  p.m = static_cast<int>(line.size("m", 1, kMax));
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.k = static_cast<int>(line.size("k", 1, kMax));
  p.bias = line.flag("bias");
  p.params16 = line.flag("params16");
  p.residual = line.flag("residual");
  p.silu = line.flag("silu");
  p.accumulate = line.flag("accumulate");
  p.split = static_cast<int>(line.size_or("split", 0, 1, kMax));
  if (p.split >= p.k) line.fail("split: the first part has all of k's columns");
  p.batch = static_cast<int>(line.size_or("batch", 1, 1, kMaxBatch));
  p.allow_tf32 = line.flag("allow_tf32");
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  // Kernels count elements of a tensor with 32-bit signed integers.
  constexpr double kMaxElements = 2147483647.0;
  if (double(p.m) * p.k > kMaxElements || double(p.m) * p.n > kMaxElements || double(p.n) * p.k > kMaxElements) {
    line.fail("a tensor of more than 2^31 - 1 elements");
  }
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones. Of one or two, a product might be a copy of a factor.
  const auto draw = [&](int most) { return static_cast<int>(3 + random() % (1 + random() % most)); };
  const auto coin = [&] { return random() % 2 == 0; };
  Problem p{.m = draw(400),
            .n = draw(200),
            .k = draw(200),
            .bias = coin(),
            .residual = coin(),
            .silu = coin(),
            .accumulate = coin()};
  // SiLU takes almost half of large sums to zero: of few, zeros might pass for an answer.
  p.silu = p.silu && p.m * p.n >= 1024;
  // Half of all are of rows that 16-byte copies can take.
  if (coin()) {
    p.n = (p.n + 7) / 8 * 8;
    p.k = (p.k + 7) / 8 * 8;
  }
  // A quarter are split.
  if (random() % 4 == 0) {
    p.split = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(p.k - 1));
    if (p.k % 8 == 0 && p.k > 8 && coin()) p.split = (p.split + 7) / 8 * 8 % p.k;
  }
  p.params16 = random() % 4 == 0;
  if (random() % 4 == 0) p.batch = 2 + static_cast<int>(random() % 3);
  p.allow_tf32 = random() % 4 == 0;
  return p;
}

namespace {

// Factors are drawn such that sums of `terms` products have unit variance: He et al. 2015, eq. 10 without the factor 2.
double unit_variance(double terms) { return 1.0 / std::sqrt(terms); }

// `layout` names the two dimensions: "mk".
TensorSpec matrix(const char* name, Role role, const Problem& p, Dtype dtype, const char* layout) {
  const auto extent = [&](char letter) { return letter == 'm' ? p.m : letter == 'n' ? p.n : p.k; };
  return {
      .name = name, .role = role, .dtype = dtype, .shape = {extent(layout[0]), extent(layout[1])}, .layout = layout};
}

TensorSpec per_feature(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = p.parameter_dtype(), .shape = {p.n}, .layout = "n"};
}

// A matrix [m, k] as the tensor `first` or, with `split`, as that and `remainder`.
void add_in_parts(std::vector<TensorSpec>& specs, const char* first, const char* remainder, const TensorSpec& full,
                  int split) {
  for (const char* name : {first, remainder}) {
    TensorSpec part = full;
    part.name = name;
    if (split > 0) part.shape[1] = name == first ? split : full.shape[1] - split;
    specs.push_back(std::move(part));
    if (split == 0) return;
  }
}

double flops_of(const Problem& p) { return 2.0 * p.m * p.n * p.k; }

}  // namespace

std::vector<TensorSpec> Fprop::tensors(const Problem& p) {
  std::vector<TensorSpec> specs;
  add_in_parts(specs, "x", "x_rest", matrix("x", Role::input, p, p.dtype, "mk"), p.split);
  specs.push_back(matrix("w", Role::input, p, p.dtype, "nk"));
  specs.back().stddev = unit_variance(p.k);
  if (p.bias) specs.push_back(per_feature("bias", Role::input, p));
  if (p.residual) specs.push_back(matrix("r", Role::input, p, storage_dtype(p.dtype), "mn"));
  specs.push_back(matrix("y", Role::output, p, storage_dtype(p.dtype), "mn"));
  specs.back().reduction_length = std::int64_t{p.k} + (p.bias ? 1 : 0) + (p.residual ? 1 : 0);
  specs.back().intermediate = p.rounded_terms();
  return specs;
}

Fprop::Tensors Fprop::bind(const Pointers& at) {
  return {.x = at["x"],
          .w = at["w"],
          .bias = at.get<const float>("bias"),
          .r = at.get<const void>("r"),
          .y = at["y"],
          .x_rest = at.get<const void>("x_rest")};
}

double Fprop::flops(const Problem& p) { return flops_of(p); }

std::vector<TensorSpec> Dgrad::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {matrix("dy", Role::input, p, p.dtype, "mn"),
                                   matrix("w", Role::input, p, p.dtype, "nk")};
  specs[1].stddev = unit_variance(p.n);
  if (p.accumulate) specs.push_back(matrix("r", Role::input, p, storage_dtype(p.dtype), "mk"));
  TensorSpec dx = matrix("dx", Role::output, p, storage_dtype(p.dtype), "mk");
  dx.reduction_length = std::int64_t{p.n} + (p.accumulate ? 1 : 0);
  dx.intermediate = p.rounded_terms();
  add_in_parts(specs, "dx", "dx_rest", dx, p.split);
  return specs;
}

Dgrad::Tensors Dgrad::bind(const Pointers& at) {
  return {
      .dy = at["dy"], .w = at["w"], .r = at.get<const void>("r"), .dx = at["dx"], .dx_rest = at.get<void>("dx_rest")};
}

double Dgrad::flops(const Problem& p) { return flops_of(p); }

std::vector<TensorSpec> Wgrad::tensors(const Problem& p) {
  std::vector<TensorSpec> specs;
  add_in_parts(specs, "x", "x_rest", matrix("x", Role::input, p, p.dtype, "mk"), p.split);
  specs.push_back(matrix("dy", Role::input, p, p.dtype, "mn"));
  specs.back().stddev = unit_variance(p.m);
  specs.push_back(matrix("dw", Role::output, p, storage_dtype(p.dtype), "nk"));
  specs.back().reduction_length = p.m;
  specs.back().intermediate = p.rounded_terms();
  if (p.bias) {
    specs.push_back(per_feature("dbias", Role::output, p));
    specs.back().reduction_length = p.m;
  }
  return specs;
}

Wgrad::Tensors Wgrad::bind(const Pointers& at) {
  return {.x = at["x"],
          .dy = at["dy"],
          .dw = at["dw"],
          .dbias = at.get<float>("dbias"),
          .x_rest = at.get<const void>("x_rest")};
}

double Wgrad::flops(const Problem& p) { return flops_of(p); }

std::vector<TensorSpec> WgradBatch::tensors(const Problem& p) {
  Problem single = p;
  single.params16 = false;
  return tensors_of_layers(Wgrad::tensors(single), p.batch);
}

WgradBatch::Tensors WgradBatch::bind(const Pointers& at) {
  Tensors t = wgrad_of_layers<Tensors, kMaxBatch>(at);
  for (int i = 0; i < kMaxBatch; ++i) t.x_rest[i] = at.get<const void>("x_rest" + std::to_string(i));
  return t;
}

double WgradBatch::flops(const Problem& p) { return p.batch * flops_of(p); }

}  // namespace ladder::gemm
