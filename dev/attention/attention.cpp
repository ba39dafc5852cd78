#include "dev/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/parallel.h"
#include "core/problem_line.h"

namespace ladder::attention {

std::string Problem::str() const {
  const auto word = [](const char* name, int value) { return name + std::to_string(value) + ' '; };
  return word("n", n) + word("t", t) + word("heads", heads) + word("d", d) + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "n32 t256 heads6 d32 [fp32|tf32|bf16|fp16]");
  constexpr int kMax = 1 << 20;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.t = static_cast<int>(line.size("t", 1, kMaxTokens));
  p.heads = static_cast<int>(line.size("heads", 1, kMax));
  p.d = static_cast<int>(line.size("d", 1, kMax));
  if (p.d != 32 && p.d != 64) line.fail("d must be 32 or 64");
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  // Kernels index elements with 32-bit signed integers.
  constexpr double kMaxElements = 2147483647.0;
  if (3.0 * p.n * p.t * p.heads * p.d > kMaxElements) line.fail("a tensor of more than 2^31 - 1 elements");
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  Problem p{.n = draw(3), .t = 3 + draw(93), .heads = draw(3)};
  if (random() % 3 == 0) p.d = 64;
  return p;
}

namespace {

// What p and ds may be rounded to.
std::optional<Dtype> operand_dtype(const Problem& p) {
  return p.dtype == Dtype::f32 ? std::nullopt : std::optional(p.dtype);
}

TensorSpec tokens(const char* name, Role role, const Problem& p, Dtype dtype, int channels) {
  return {.name = name, .role = role, .dtype = dtype, .shape = {p.n, p.t, channels}, .layout = "ntc"};
}

TensorSpec log_sum_exp(Role role, const Problem& p) {
  return {.name = "lse", .role = role, .dtype = Dtype::f32, .shape = {p.n, p.heads, p.t}, .layout = "nht"};
}

// A product over channels, then one over tokens.
TensorSpec reduced(const Problem& p, TensorSpec output) {
  output.reduction_length = p.d + p.t;
  return output;
}

}  // namespace

std::vector<TensorSpec> Forward::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {tokens("qkv", Role::input, p, p.dtype, 3 * p.c()),
                                   reduced(p, tokens("o", Role::output, p, storage_dtype(p.dtype), p.c())),
                                   reduced(p, log_sum_exp(Role::output, p))};
  specs[1].intermediate = operand_dtype(p);
  return specs;
}

Forward::Tensors Forward::bind(const Pointers& at) {
  return {.qkv = at["qkv"], .o = at["o"], .lse = at.get<float>("lse")};
}

double Forward::flops(const Problem& p) { return 4.0 * static_cast<double>(p.scores()) * p.d; }

std::vector<TensorSpec> Backward::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {tokens("qkv", Role::input, p, p.dtype, 3 * p.c()),
                                   tokens("o", Role::input, p, storage_dtype(p.dtype), p.c()),
                                   log_sum_exp(Role::input, p), tokens("d_o", Role::input, p, p.dtype, p.c()),
                                   reduced(p, tokens("dqkv", Role::output, p, storage_dtype(p.dtype), 3 * p.c()))};
  specs.back().intermediate = operand_dtype(p);
  return specs;
}

Backward::Tensors Backward::bind(const Pointers& at) {
  return {.qkv = at["qkv"], .o = at["o"], .lse = at.get<const float>("lse"), .d_o = at["d_o"], .dqkv = at["dqkv"]};
}

double Backward::flops(const Problem& p) { return 10.0 * static_cast<double>(p.scores()) * p.d; }

void Backward::derive(const Problem& p, HostTensors& inputs) {
  const Attended a = attend(p, inputs["qkv"]);
  std::vector<float>& o = inputs["o"];
  o.resize(a.o.size());
  std::transform(a.o.begin(), a.o.end(), o.begin(),
                 [&](double value) { return round_to(storage_dtype(p.dtype), static_cast<float>(value)); });
  inputs["lse"].assign(a.lse.begin(), a.lse.end());
}

Attended attend(const Problem& p, const std::vector<float>& qkv) {
  Attended a{.o = std::vector<double>(p.tokens() * p.c()), .lse = std::vector<double>(p.tokens() * p.heads)};
  const double scale = 1 / std::sqrt(static_cast<double>(p.d));
  parallel_for(std::int64_t{p.n} * p.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> e(p.t);
    for (std::int64_t index = begin; index < end; ++index) {
      const std::int64_t image = index / p.heads;
      const auto head = static_cast<int>(index % p.heads);
      const HeadView q = part_of_qkv(p, image, head, 0);
      const HeadView k = part_of_qkv(p, image, head, 1);
      const HeadView v = part_of_qkv(p, image, head, 2);
      const HeadView out = head_of_o(p, image, head);
      for (int i = 0; i < p.t; ++i) {
        for (int j = 0; j < p.t; ++j) {
          const float* q_row = &qkv[q.first + i * q.pitch];
          const float* k_row = &qkv[k.first + j * k.pitch];
          double dot = 0;
          for (int x = 0; x < p.d; ++x) dot += double(q_row[x]) * k_row[x];
          e[j] = scale * dot;
        }
        const double most = *std::max_element(e.begin(), e.end());
        double sum = 0;
        for (double& value : e) sum += value = std::exp(value - most);
        a.lse[index * p.t + i] = most + std::log(sum);
        double* o_row = &a.o[out.first + i * out.pitch];
        for (int j = 0; j < p.t; ++j) {
          const float* v_row = &qkv[v.first + j * v.pitch];
          for (int x = 0; x < p.d; ++x) o_row[x] += e[j] / sum * v_row[x];
        }
      }
    }
  });
  return a;
}

}  // namespace ladder::attention
