#include "dev/policy/policy.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/problem_line.h"
#include "dev/policy/layout.h"

namespace ladder::policy {
namespace {

constexpr int kMost = 1 << 16;  // of most sizes

TensorSpec input(const char* name, Dtype dtype, std::vector<std::int64_t> shape, const char* layout) {
  return {.name = name, .role = Role::input, .dtype = dtype, .shape = std::move(shape), .layout = layout};
}

// The longest sum on the way to an element of x: of a convolution or of a group's statistics.
std::int64_t longest_sum(const Network& network) {
  std::int64_t longest = 1;
  for (int i = 0; i < network.count; ++i) {
    const Stage& stage = network.stages[i];
    longest = std::max<std::int64_t>(longest, std::int64_t{stage.convolution(1).terms()} * stage.c + 1);
    if (stage.groups > 0) longest = std::max<std::int64_t>(longest, stage.k / stage.groups * stage.out_l());
  }
  return longest;
}

double root_mean_square(const std::vector<float>& values, std::int64_t begin, std::int64_t count, double mean) {
  double squares = 0;
  for (std::int64_t i = begin; i < begin + count; ++i) squares += (values[i] - mean) * (values[i] - mean);
  return std::sqrt(std::max(squares / static_cast<double>(count), 1e-12));
}

// values[begin...] = mean + deviation * what was drawn, as if that were of unit size. Values that have about
// that deviation from the mean already stay as they are: where one of them has changed, all others are the same.
void rescale(std::vector<float>& values, std::int64_t begin, std::int64_t count, double mean, double deviation,
             Dtype dtype = Dtype::f32) {
  constexpr double kAbout = 0.2;
  if (std::abs(deviation / root_mean_square(values, begin, count, mean) - 1) < kAbout) return;
  const double factor = deviation / root_mean_square(values, begin, count, 0);
  for (std::int64_t i = begin; i < begin + count; ++i) {
    values[i] = round_to(dtype, static_cast<float>(mean + factor * values[i]));
  }
}

// Outputs of a convolution are about as large as its inputs: He et al. 2015, eq. 10 without the factor 2.
void fill_parameters(const Problem& p, const Network& network, HostTensors& inputs) {
  constexpr double kSmall = 0.25;
  std::vector<float>& vectors = inputs["vectors"];
  const auto convolution = [&](std::int64_t weights, std::int64_t bias, const conv1d::Problem& conv) {
    const std::int64_t count = std::int64_t{conv.k} * conv.taps * conv.c;
    rescale(inputs["weights"], weights, count, 0, 1 / std::sqrt(double(conv.terms()) * conv.c), p.dtype);
    rescale(vectors, bias, conv.k, 0, kSmall);
  };
  for (int i = 0; i < network.count; ++i) {
    const Stage& stage = network.stages[i];
    convolution(stage.weights, stage.bias, stage.convolution(1));
    if (stage.residual == Residual::convolution) {
      convolution(stage.residual_weights, stage.residual_bias, network.stages[i - 1].widened(1, stage.k));
    }
    if (stage.groups == 0) continue;
    rescale(vectors, stage.gamma(), stage.k, 1, kSmall);
    rescale(vectors, stage.beta(), stage.k, 0, kSmall);
  }
}

void fill_film(const Problem& p, const Network& network, HostTensors& inputs) {
  constexpr double kDeviation = 0.5;
  for (int i = 0; i < network.count; ++i) {
    const Stage& stage = network.stages[i];
    if (stage.film == kNone) continue;
    for (int s = 0; s < p.steps; ++s) {
      const std::int64_t row = std::int64_t{s} * network.film_row + stage.film;
      rescale(inputs["film_table"], row, stage.k, 1, kDeviation);
      rescale(inputs["film_table"], row + stage.k, stage.k, 0, kDeviation);
    }
    for (int n = 0; n < p.n; ++n) {
      rescale(inputs["film"], std::int64_t{n} * network.film_row + stage.film, 2 * stage.k, 0, kDeviation);
    }
  }
}

// A row in the middle of a sampler of few steps, where the network's answer counts as much as x and the noise.
diffusion::StepCoefficients typical_row(const Problem& p) {
  diffusion::StepCoefficients row{.x_scale = 1.0f, .pred_scale = 0.6f, .x0_scale = 1.25f, .clip = 2.0f};
  row.x0_weight = 0.6f;
  row.x_weight = p.ddim ? 0.0f : 0.4f;
  row.pred_weight = p.ddim ? 0.5f : 0.0f;
  row.sigma = 0.3f;
  return row;
}

}  // namespace

std::string Problem::str() const {
  const auto word = [](const char* letters, int value) { return letters + std::to_string(value) + ' '; };
  std::string widths = std::to_string(dims[0]);
  for (int level = 1; level < levels; ++level) widths += ',' + std::to_string(dims[level]);
  return word("n", n) + word("l", l) + word("d", d) + "dims" + widths + ' ' + word("taps", taps) +
         word("groups", groups) + word("steps", steps) + (ddim ? "ddim " : "ddpm ") + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "n1 l16 d2 dims256,512,1024 taps5 groups8 steps100 ddpm|ddim [fp32|bf16|fp16]");
  constexpr int kMaxTaps = 7;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMost));
  p.l = static_cast<int>(line.size("l", 1, kMost));
  p.d = static_cast<int>(line.size("d", 1, kMost));
  const std::vector<std::int64_t> dims = line.sizes("dims", 1, kMost);
  p.taps = static_cast<int>(line.size("taps", 1, kMaxTaps));
  p.groups = static_cast<int>(line.size("groups", 1, kMost));
  p.steps = static_cast<int>(line.size("steps", 1, kMost));
  p.ddim = line.flag("ddim");
  const bool ddpm = line.flag("ddpm");
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  if (p.ddim == ddpm) line.fail("one of ddpm and ddim");
  if (p.dtype == Dtype::tf32) line.fail("tensors are fp32, bf16 or fp16");
  if (p.taps % 2 == 0) line.fail("taps must be 1, 3, 5 or 7");
  p.levels = static_cast<int>(dims.size());
  if (p.levels > kMaxLevels) line.fail("more than " + std::to_string(kMaxLevels) + " levels");
  const int halvings = 1 << (p.levels - 1);
  if (p.l % halvings != 0) {
    line.fail("the levels halve l: multiples of " + std::to_string(halvings) + " are right");
  }
  for (int level = 0; level < p.levels; ++level) {
    p.dims[level] = static_cast<int>(dims[level]);
    if (p.dims[level] % p.groups != 0) {
      line.fail("groups must divide all of dims: multiples of " + std::to_string(p.groups) + " are right");
    }
  }
  if (p.dims[0] % kLastGroups != 0) line.fail("the last block has 8 groups: the first of dims is a multiple of 8");
  // Kernels index elements with 32-bit signed integers.
  constexpr double kMaxElements = 2147483647.0;
  const double widest = *std::ranges::max_element(p.dims);
  const double parameters = (p.taps + 1) * 2 * widest * widest * kMaxStages;  // or fewer
  const double values = double(p.n) * p.l * std::max<double>(widest, p.d) * kMaxStages;
  if (parameters > kMaxElements || values > kMaxElements || double(p.steps) * kMaxStages * widest > kMaxElements ||
      double(p.dims[0]) * p.d * p.taps > kMaxElements / 4) {
    line.fail("a tensor of more than 2^31 - 1 elements");
  }
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  const auto coin = [&] { return random() % 2 == 0; };
  Problem p{.n = draw(3), .d = draw(10), .levels = draw(3)};
  p.l = (4 << (p.levels - 1)) * draw(2);  // a group of few elements has little to normalise
  p.groups = 1 << random() % 4;
  p.dims[0] = 8 * draw(4);
  for (int level = 1; level < p.levels; ++level) p.dims[level] = (coin() ? 8 : p.groups) * draw(4);
  for (int level = 1; level < p.levels; ++level) {
    if (p.dims[level] % p.groups != 0) p.dims[level] *= p.groups;
  }
  p.taps = 2 * draw(4) - 1;
  p.steps = draw(6);
  p.ddim = coin();
  return p;
}

std::vector<TensorSpec> Step::tensors(const Problem& p) {
  const Network network = network_of(p);
  std::vector<TensorSpec> specs = {
      input("weights", p.dtype, {network.weights}, "w"),
      input("vectors", Dtype::f32, {network.vectors}, "v"),
      input("film_table", Dtype::f32, {p.steps, network.film_row}, "sf"),
      input("film", Dtype::f32, {p.n, network.film_row}, "nf"),
      input("table", Dtype::f32, {p.steps, diffusion::kStepColumns}, "sj"),
      {.name = "step", .role = Role::input, .dtype = Dtype::i32, .shape = {1}, .layout = "i", .high = p.steps - 1},
      input("noise", Dtype::f32, {p.n, p.l, p.d}, "nld"),
      {.name = "x", .role = Role::inout, .dtype = Dtype::f32, .shape = {p.n, p.l, p.d}, .layout = "nld"}};
  specs.back().reduction_length = longest_sum(network);
  if (p.dtype != Dtype::f32) specs.back().intermediate = p.dtype;
  return specs;
}

Step::Tensors Step::bind(const Pointers& at) {
  return {.weights = at["weights"],
          .vectors = at.get<const float>("vectors"),
          .film_table = at.get<const float>("film_table"),
          .film = at.get<const float>("film"),
          .table = at.get<const diffusion::StepCoefficients>("table"),
          .step = at.get<const std::int32_t>("step"),
          .noise = at.get<const float>("noise"),
          .x = at.get<float>("x")};
}

double Step::flops(const Problem& p) {
  const Network network = network_of(p);
  const auto of = [](const conv1d::Problem& conv) {
    return 2.0 * conv.n * conv.out_l() * conv.k * conv.terms() * conv.c;
  };
  double flops = 0;
  for (int i = 0; i < network.count; ++i) {
    const Stage& stage = network.stages[i];
    flops += of(stage.convolution(p.n));
    if (stage.residual == Residual::convolution) flops += of(network.stages[i - 1].widened(p.n, stage.k));
  }
  return flops;
}

Traffic Step::traffic(const Problem& p) {
  Problem one_row = p;
  one_row.steps = 1;
  return each_once(tensors(one_row));
}

void Step::derive(const Problem& p, HostTensors& inputs) {
  const Network network = network_of(p);
  fill_parameters(p, network, inputs);
  fill_film(p, network, inputs);

  // Each coefficient is a little off by what was drawn for it, so that no two rows are the same; one that is off by as little
  // already stays.
  constexpr double kApart = 1.0 / 16;
  const diffusion::StepCoefficients row = typical_row(p);
  const auto* const columns = reinterpret_cast<const float*>(&row);
  std::vector<float>& table = inputs["table"];
  for (std::size_t i = 0; i < table.size(); ++i) {
    const float column = columns[i % diffusion::kStepColumns];
    if (std::abs(table[i] - column) <= kApart * std::abs(column)) continue;
    table[i] = column * static_cast<float>(1 + kApart * std::tanh(table[i]));
  }
  reinterpret_cast<diffusion::StepCoefficients*>(table.data())[p.steps - 1].sigma = 0;
}

}  // namespace ladder::policy
