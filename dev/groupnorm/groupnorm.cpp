#include "dev/groupnorm/groupnorm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "core/parallel.h"
#include "core/problem_line.h"

namespace ladder::groupnorm {
namespace {

// The words of problem lines; the identity has none.
constexpr std::array<std::pair<Activation, const char*>, 5> kActivations = {{{Activation::relu, "relu"},
                                                                             {Activation::silu, "silu"},
                                                                             {Activation::gelu, "gelu"},
                                                                             {Activation::gelu_tanh, "gelu-tanh"},
                                                                             {Activation::mish, "mish"}}};

TensorSpec image(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = p.dtype, .shape = {p.n, p.h, p.w, p.c}, .layout = "nhwc"};
}

// Spec of x [n, h, w, c]. With a standard deviation of 1 y would equal x. Around a large mean it is at least four
// roundoff units of the mean.
TensorSpec normalised_image(const Problem& p) {
  TensorSpec x = image("x", Role::input, p);
  x.mean = p.mean;
  x.stddev = std::max(2.0, 4 * unit_roundoff(p.dtype) * p.mean);
  return x;
}

// Spec of the tensor x: all channels, or the first `split` of them; x_rest has the others.
TensorSpec first_of_x(const Problem& p) {
  TensorSpec x = normalised_image(p);
  if (p.split > 0) x.shape.back() = p.split;
  return x;
}

void add_rest_of_x(const Problem& p, std::vector<TensorSpec>& specs) {
  if (p.split == 0) return;
  specs.push_back(normalised_image(p));
  specs.back().name = "x_rest";
  specs.back().shape.back() = p.c - p.split;
}

TensorSpec per_channel(const char* name, Role role, const Problem& p) {
  return {.name = name,
          .role = role,
          .dtype = p.parameter_dtype(),
          .shape = {p.c},
          .layout = "c",
          .drawn = p.dtype};  // so that a library whose parameters have x's type can be compared
}

TensorSpec per_group(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = Dtype::f32, .shape = {p.n, p.g}, .layout = "ng"};
}

// Spec of an addend, about as large as the gradient that it is added to.
TensorSpec addend(const char* name, const Problem& p) {
  TensorSpec addend = image(name, Role::input, p);
  addend.stddev = 1 / normalised_image(p).stddev;
  return addend;
}

TensorSpec sum_of(std::int64_t terms, TensorSpec output) {
  output.reduction_length = terms;
  return output;
}

}  // namespace

std::string Problem::str() const {
  auto word = [](const std::string& name, int value) { return name + std::to_string(value) + ' '; };
  std::string line = word("n", n) + word("h", h) + word("w", w) + word("c", c) + word("g", g);
  for (const auto& [known, text] : kActivations) {
    if (known == activation) line += std::string(text) + ' ';
  }
  return line + (affine ? "" : "no-affine ") + (params16 ? "params16 " : "") + (mean != 0 ? word("mean", mean) : "") +
         (eps != Problem{}.eps ? fmt::format("eps{} ", eps) : "") + (split != 0 ? word("split", split) : "") +
         (addends != 0 ? word("addend", addends) : "") +
         (embedding != 0 ? word("embedding", embedding) + word("first", first) : "") + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text,
                   "n32 h64 w64 c64 g32 [relu|silu|gelu|gelu-tanh|mish] [no-affine] [params16] [mean20000] [eps1e-6] "
                   "[split128] [addend1|addend2] [embedding3712 first1920] [fp32|bf16|fp16]");
  constexpr int kMax = 1 << 20;
  constexpr int kMaxMean = 30000;  // fp16 ends at 65504
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.h = static_cast<int>(line.size("h", 1, kMax));
  p.w = static_cast<int>(line.size("w", 1, kMax));
  p.c = static_cast<int>(line.size("c", 1, kMax));
  p.g = static_cast<int>(line.size("g", 1, kMax));
  if (p.c % p.g != 0) line.fail("g must divide c");
  for (const auto& [activation, word] : kActivations) {
    if (!line.flag(word)) continue;
    if (p.activation != Activation::identity) line.fail("it names two activations");
    p.activation = activation;
  }
  p.affine = !line.flag("no-affine");
  p.params16 = line.flag("params16");
  p.mean = static_cast<int>(line.size_or("mean", 0, 0, kMaxMean));
  p.eps = line.positive_or("eps", p.eps);
  p.split = static_cast<int>(line.size_or("split", 0, 1, kMax));
  if (p.split >= p.c) line.fail("split: the first part has all of c's channels");
  p.addends = static_cast<int>(line.size_or("addend", 0, 1, 2));
  p.embedding = static_cast<int>(line.size_or("embedding", 0, 1, kMax));
  if (p.embedding != 0) p.first = static_cast<int>(line.size("first", 0, kMax));
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  if (p.embedding != 0 && p.addends != 0) line.fail("addend and embedding exclude each other");
  if (p.embedding != 0 && p.first + p.c > p.embedding) line.fail("c columns from `first` on are more than `embedding`");
  // Kernels index elements with 32-bit signed integers.
  constexpr double kMaxElements = 2147483647.0;
  if (double(p.n) * p.h * p.w * p.c > kMaxElements) line.fail("a tensor of more than 2^31 - 1 elements");
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  Problem p{.n = draw(4), .h = draw(16), .w = draw(16), .g = draw(24)};
  p.c = p.g * draw(12);
  p.activation = static_cast<Activation>(random() % (kActivations.size() + 1));
  p.affine = random() % 4 != 0;
  if (random() % 8 == 0) p.mean = 20000;
  p.params16 = random() % 4 == 0;
  if (random() % 4 == 0) p.eps = random() % 2 == 0 ? 1e-6f : 1e-3f;
  if (random() % 4 == 0) p.addends = draw(2);
  if (p.addends == 0 && random() % 4 == 0) {
    p.first = draw(8) - 1;
    p.embedding = p.first + p.c + draw(8) - 1;
  }
  if (p.c > 1 && random() % 4 == 0) {
    p.split = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(p.c - 1));
    // Round half of the splits to whole vectors, if c is a multiple of a vector.
    if (p.c % 8 == 0 && p.c > 8 && random() % 2 == 0) p.split = (p.split + 7) / 8 * 8 % p.c;
  }
  // Add parameters and SiLU to problems with constant answers. In a group of one or two elements xhat and dx are
  // constants, and only gamma and beta distinguish the outputs. For a single pixel without an activation dbeta is a
  // copy of dy.
  if (p.group_size() <= 2 || p.n * p.pixels() == 1) {
    p.affine = true;
    p.activation = Activation::silu;
  }
  // Avoid images of a single element: all of y would be one value.
  if (p.c == 1 && p.pixels() == 1) p.h = 2;
  return p;
}

std::vector<TensorSpec> Forward::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {first_of_x(p)};
  if (p.affine) {
    specs.push_back(per_channel("gamma", Role::input, p));
    specs.push_back(per_channel("beta", Role::input, p));
  }
  specs.push_back(sum_of(p.group_size(), image("y", Role::output, p)));
  specs.push_back(sum_of(p.group_size(), per_group("mean", Role::output, p)));
  specs.push_back(sum_of(p.group_size(), per_group("rstd", Role::output, p)));
  add_rest_of_x(p, specs);
  return specs;
}

Forward::Tensors Forward::bind(const Pointers& at) {
  return {.x = at["x"],
          .gamma = at.get<const float>("gamma"),
          .beta = at.get<const float>("beta"),
          .y = at["y"],
          .mean = at.get<float>("mean"),
          .rstd = at.get<float>("rstd"),
          .x_rest = at.get<const void>("x_rest")};
}

double Forward::flops(const Problem& p) { return 10.0 * static_cast<double>(p.elements()); }

std::vector<TensorSpec> Backward::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {first_of_x(p), image("dy", Role::input, p)};
  if (p.affine) {
    specs.push_back(per_channel("gamma", Role::input, p));
    specs.push_back(per_channel("beta", Role::input, p));
  }
  specs.push_back(per_group("mean", Role::input, p));
  specs.push_back(per_group("rstd", Role::input, p));
  specs.push_back(sum_of(p.group_size(), image("dx", Role::output, p)));
  if (p.affine) {
    const std::int64_t pixels = std::int64_t{p.n} * p.pixels();
    specs.push_back(sum_of(pixels, per_channel("dgamma", Role::output, p)));
    specs.push_back(sum_of(pixels, per_channel("dbeta", Role::output, p)));
  }
  if (p.addends > 0) specs.push_back(addend("addend", p));
  if (p.addends > 1) specs.push_back(addend("addend2", p));
  add_rest_of_x(p, specs);
  if (p.embedding == 0) return specs;
  specs.push_back(sum_of(p.group_size(), {.name = "de",
                                          .role = p.embedding == p.c ? Role::output : Role::inout,
                                          .dtype = Dtype::f32,
                                          .shape = {p.n, p.embedding},
                                          .layout = "nc"}));
  return specs;
}

Backward::Tensors Backward::bind(const Pointers& at) {
  return {.x = at["x"],
          .dy = at["dy"],
          .gamma = at.get<const float>("gamma"),
          .beta = at.get<const float>("beta"),
          .mean = at.get<const float>("mean"),
          .rstd = at.get<const float>("rstd"),
          .dx = at["dx"],
          .dgamma = at.get<float>("dgamma"),
          .dbeta = at.get<float>("dbeta"),
          .addend = at.get<const void>("addend"),
          .addend2 = at.get<const void>("addend2"),
          .de = at.get<float>("de"),
          .x_rest = at.get<const void>("x_rest")};
}

Traffic Backward::traffic(const Problem& p) {
  std::vector<TensorSpec> specs = tensors(p);
  if (p.embedding == 0) return each_once(specs);
  specs.pop_back();
  Traffic traffic = each_once(specs);
  traffic.write_bytes += static_cast<double>(p.n) * p.c * sizeof(float);
  return traffic;
}

double Backward::flops(const Problem& p) { return 21.0 * static_cast<double>(p.elements()); }

void Backward::derive(const Problem& p, HostTensors& inputs) {
  const Statistics s = statistics(p, whole_x(p, inputs));
  inputs["mean"].assign(s.mean.begin(), s.mean.end());
  inputs["rstd"].assign(s.rstd.begin(), s.rstd.end());
}

std::vector<float> whole_x(const Problem& p, const HostTensors& inputs) {
  if (p.split == 0) return inputs["x"];
  std::vector<float> x;
  x.reserve(static_cast<std::size_t>(p.elements()));
  const auto append = [&x](const std::vector<float>& part, std::int64_t pixel, int channels) {
    x.insert(x.end(), part.begin() + pixel * channels, part.begin() + (pixel + 1) * channels);
  };
  for (std::int64_t pixel = 0; pixel < std::int64_t{p.n} * p.pixels(); ++pixel) {
    append(inputs["x"], pixel, p.split);
    append(inputs["x_rest"], pixel, p.c - p.split);
  }
  return x;
}

Statistics statistics(const Problem& p, const std::vector<float>& x) {
  const std::int64_t groups = std::int64_t{p.n} * p.g;
  const auto m = static_cast<double>(p.group_size());
  Statistics s{.mean = std::vector<double>(groups), .rstd = std::vector<double>(groups)};
  parallel_for(groups, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      const int channels_per_group = p.channels_per_group();
      const float* first = &x[(group / p.g) * p.pixels() * p.c + (group % p.g) * channels_per_group];
      const auto sum_of = [&](const auto& term) {
        double sum = 0;
        for (std::int64_t pixel = 0; pixel < p.pixels(); ++pixel) {
          for (int i = 0; i < channels_per_group; ++i) sum += term(first[pixel * p.c + i]);
        }
        return sum;
      };
      const double mean = sum_of([](double value) { return value; }) / m;
      const double squares = sum_of([&](double value) { return (value - mean) * (value - mean); });
      s.mean[group] = mean;
      s.rstd[group] = 1 / std::sqrt(squares / m + static_cast<double>(p.eps));
    }
  });
  return s;
}

}  // namespace ladder::groupnorm
