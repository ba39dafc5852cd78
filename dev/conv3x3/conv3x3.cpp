#include "dev/conv3x3/conv3x3.h"

#include <fmt/format.h>

#include <cmath>
#include <random>

#include "core/problem_line.h"
#include "dev/common/layer_batch.h"

namespace ladder::conv3x3 {

std::string Problem::str() const {
  auto word = [](char letter, int value) { return letter + std::to_string(value) + ' '; };
  std::string rows;
  if (embedding > 0) {
    const bool all_columns = embedding == k && first == 0;
    rows = all_columns ? "embedding " : fmt::format("embedding{} first{} ", embedding, first);
  }
  return word('n', n) + word('h', h) + word('w', w) + word('c', c) + word('k', k) + (bias ? "bias " : "") +
         (params16 ? "params16 " : "") + rows + (residual ? "residual " : "") +
         (batch > 1 ? "batch" + std::to_string(batch) + ' ' : "") + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text,
                   "n32 h64 w64 c64 k64 [bias] [params16] [embedding|embedding3712 first1920] [residual] [batch8] "
                   "[fp32|tf32|bf16|fp16]");
  constexpr int kMax = 1 << 20;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.h = static_cast<int>(line.size("h", 1, kMax));
  p.w = static_cast<int>(line.size("w", 1, kMax));
  p.c = static_cast<int>(line.size("c", 1, kMax));
  p.k = static_cast<int>(line.size("k", 1, kMax));
  p.bias = line.flag("bias");
  p.params16 = line.flag("params16");
  p.embedding = line.flag("embedding") ? p.k : static_cast<int>(line.size_or("embedding", 0, 1, kMax));
  p.first = static_cast<int>(line.size_or("first", 0, 0, kMax));
  p.residual = line.flag("residual");
  p.batch = static_cast<int>(line.size_or("batch", 1, 1, kMaxBatch));
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  if (p.embedding > 0 ? p.first + p.k > p.embedding : p.first > 0) {
    line.fail("k columns from `first` on are more than `embedding` has");
  }
  // Kernels index elements with 32-bit signed integers.
  constexpr double kMaxElements = 2147483647.0;
  const double pixels = double(p.n) * p.h * p.w;
  if (pixels * p.c > kMaxElements || pixels * p.k > kMaxElements || double(p.n) * p.embedding > kMaxElements ||
      9.0 * p.c * p.k > kMaxElements) {
    line.fail("a tensor of more than 2^31 - 1 elements");
  }
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  Problem p{.n = draw(4), .h = draw(16), .w = draw(16), .c = draw(96), .k = draw(96), .bias = random() % 2 == 0};
  p.bias = p.bias && p.pixels() > 1;  // dbias of a single pixel is dy itself, which a check must not take for an answer
  p.params16 = random() % 4 == 0;
  p.residual = random() % 4 == 0;
  if (random() % 4 == 0) {
    p.first = random() % 2 == 0 ? 0 : draw(9) - 1;
    p.embedding = p.first + p.k + (random() % 2 == 0 ? 0 : draw(9) - 1);
  }
  if (random() % 4 == 0) p.batch = 2 + static_cast<int>(random() % 3);
  return p;
}

namespace {

// Inputs and weights are drawn such that sums of `terms` products have unit variance: He et al. 2015, eq. 10 without the
// factor 2.
double unit_variance(double terms) { return 1.0 / std::sqrt(terms); }

TensorSpec image(const char* name, Role role, const Problem& p, Dtype dtype, int channels, char letter) {
  return {.name = name,
          .role = role,
          .dtype = dtype,
          .shape = {p.n, p.h, p.w, channels},
          .layout = std::string("nhw") + letter};
}

TensorSpec weights(const char* name, Role role, const Problem& p, Dtype dtype) {
  return {.name = name, .role = role, .dtype = dtype, .shape = {p.k, 3, 3, p.c}, .layout = "krsc"};
}

TensorSpec per_channel(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = p.parameter_dtype(), .shape = {p.k}, .layout = "k"};
}

}  // namespace

std::vector<TensorSpec> Fprop::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {image("x", Role::input, p, p.dtype, p.c, 'c'),
                                   weights("w", Role::input, p, p.dtype)};
  specs[1].stddev = unit_variance(9.0 * p.c);
  if (p.bias) specs.push_back(per_channel("bias", Role::input, p));
  if (p.embedding > 0) {
    specs.push_back(
        {.name = "e", .role = Role::input, .dtype = Dtype::f32, .shape = {p.n, p.embedding}, .layout = "nk"});
  }
  if (p.residual) specs.push_back(image("r", Role::input, p, storage_dtype(p.dtype), p.k, 'k'));
  specs.push_back(image("y", Role::output, p, storage_dtype(p.dtype), p.k, 'k'));
  specs.back().reduction_length =
      std::int64_t{9} * p.c + (p.bias ? 1 : 0) + (p.embedding > 0 ? 1 : 0) + (p.residual ? 1 : 0);
  return specs;
}

Traffic Fprop::traffic(const Problem& p) {
  Traffic sum;
  for (const TensorSpec& spec : tensors(p)) {
    const std::int64_t elements = spec.name == "e" ? std::int64_t{p.n} * p.k : spec.elements();
    (spec.role == Role::input ? sum.read_bytes : sum.write_bytes) +=
        static_cast<double>(elements) * size_of(spec.dtype);
  }
  return sum;
}

Fprop::Tensors Fprop::bind(const Pointers& at) {
  return {.x = at["x"],
          .w = at["w"],
          .bias = at.get<const float>("bias"),
          .e = at.get<const float>("e"),
          .r = at.get<const void>("r"),
          .y = at["y"]};
}

double Fprop::flops(const Problem& p) { return 2.0 * 9.0 * p.c * p.k * static_cast<double>(p.pixels()); }

std::vector<TensorSpec> Dgrad::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {image("dy", Role::input, p, p.dtype, p.k, 'k'),
                                   weights("w", Role::input, p, p.dtype),
                                   image("dx", Role::output, p, storage_dtype(p.dtype), p.c, 'c')};
  specs[1].stddev = unit_variance(9.0 * p.k);
  specs.back().reduction_length = std::int64_t{9} * p.k;
  return specs;
}

Dgrad::Tensors Dgrad::bind(const Pointers& at) { return {.dy = at["dy"], .w = at["w"], .dx = at["dx"]}; }

double Dgrad::flops(const Problem& p) { return Fprop::flops(p); }

std::vector<TensorSpec> Wgrad::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {image("x", Role::input, p, p.dtype, p.c, 'c'),
                                   image("dy", Role::input, p, p.dtype, p.k, 'k'),
                                   weights("dw", Role::output, p, storage_dtype(p.dtype))};
  specs[1].stddev = unit_variance(static_cast<double>(p.pixels()));
  specs.back().reduction_length = p.pixels();
  if (p.bias) {
    specs.push_back(per_channel("dbias", Role::output, p));
    specs.back().reduction_length = p.pixels();
  }
  return specs;
}

Wgrad::Tensors Wgrad::bind(const Pointers& at) {
  return {.x = at["x"], .dy = at["dy"], .dw = at["dw"], .dbias = at.get<float>("dbias")};
}

double Wgrad::flops(const Problem& p) { return Fprop::flops(p); }

std::vector<TensorSpec> WgradBatch::tensors(const Problem& p) {
  Problem single = p;
  single.params16 = false;
  return tensors_of_layers(Wgrad::tensors(single), p.batch);
}

WgradBatch::Tensors WgradBatch::bind(const Pointers& at) { return wgrad_of_layers<Tensors, kMaxBatch>(at); }

double WgradBatch::flops(const Problem& p) { return p.batch * Fprop::flops(p); }

}  // namespace ladder::conv3x3
