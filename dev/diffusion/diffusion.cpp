#include "dev/diffusion/diffusion.h"

#include <random>

#include "core/near_nominal.h"
#include "core/problem_line.h"

namespace ladder::diffusion {
namespace {

// Seeds, offsets and first images of random inputs.
constexpr std::int64_t kMaxDrawn = 1 << 24;

TensorSpec image(const char* name, Role role, const Problem& p, Dtype dtype) {
  return {.name = name, .role = role, .dtype = dtype, .shape = {p.n, p.h, p.w, p.c}, .layout = "nhwc"};
}

TensorSpec philox() {
  return {.name = "philox", .role = Role::input, .dtype = Dtype::i64, .shape = {3}, .layout = "i", .high = kMaxDrawn};
}

TensorSpec table(int rows, int columns) {
  return {.name = "table", .role = Role::input, .dtype = Dtype::f32, .shape = {rows, columns}, .layout = "tj"};
}

Betas betas_of(const Problem& p) { return p.cosine ? Betas::cosine : Betas::linear; }

std::vector<TensorSpec> step_tensors(const Problem& p, bool with_noise) {
  std::vector<TensorSpec> specs = {image("pred", Role::input, p, p.dtype)};
  if (with_noise) specs.push_back(image("noise", Role::input, p, Dtype::f32));
  specs.push_back(table(p.steps, kStepColumns));
  specs.push_back(
      {.name = "step", .role = Role::input, .dtype = Dtype::i32, .shape = {1}, .layout = "i", .high = p.steps - 1});
  specs.push_back(image("x", Role::inout, p, Dtype::f32));
  if (size_of(p.dtype) == 2) specs.push_back(image("y", Role::output, p, p.dtype));
  return specs;
}

// The table's coefficients, each a little off by what was drawn for it, so that no two tables are the same.
template <class Row>
void fill_table(HostTensors& inputs, const std::vector<Row>& rows) {
  const auto* const right = reinterpret_cast<const float*>(rows.data());
  std::vector<float>& table = inputs["table"];
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = near_nominal(right[i], table[i]);
}

void fill_step_table(const Problem& p, SchedulerKind kind, HostTensors& inputs) {
  SchedulerConfig config{.kind = kind, .beta_schedule = betas_of(p), .clip_sample = !p.no_clip};
  config.variance_type = p.large ? Variance::fixed_large : Variance::fixed_small;
  config.eta = p.eta / 100.0;
  config.clipped_eps = p.clipped_eps;
  fill_table(inputs, scheduler_table(config, scheduler_timesteps(config, p.steps)));
}

}  // namespace

std::string Problem::str() const {
  const auto word = [](const std::string& letter, int value) { return letter + std::to_string(value) + ' '; };
  const auto flag = [](bool set, const char* text) { return set ? text : ""; };
  const Problem usual;
  return word("n", n) + word("h", h) + word("w", w) + word("c", c) + flag(cosine, "cosine ") + flag(large, "large ") +
         flag(no_clip, "no-clip ") + flag(clipped_eps, "clipped-eps ") +
         (steps == usual.steps ? "" : word("steps", steps)) + (eta == usual.eta ? "" : word("eta", eta)) +
         (images == usual.images ? "" : word("images", images)) + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text,
                   "n32 h64 w64 c3 [cosine] [large] [no-clip] [clipped-eps] [steps50] [eta100] [images1200] "
                   "[fp32|bf16|fp16]");
  constexpr int kMax = 1 << 20;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.h = static_cast<int>(line.size("h", 1, kMax));
  p.w = static_cast<int>(line.size("w", 1, kMax));
  p.c = static_cast<int>(line.size("c", 1, kMax));
  p.cosine = line.flag("cosine");
  p.large = line.flag("large");
  p.no_clip = line.flag("no-clip");
  p.clipped_eps = line.flag("clipped-eps");
  p.steps = static_cast<int>(line.size_or("steps", p.steps, 1, kTimesteps));
  p.eta = static_cast<int>(line.size_or("eta", 0, 0, 100));
  p.images = static_cast<int>(line.size_or("images", 0, 1, 1 << 23));
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  // Kernels index elements with 32 bits, and count images in a grid's y.
  constexpr double kMaxElements = 2147483647.0;
  constexpr int kMaxImages = 65535;
  if (double(p.n) * p.h * p.w * p.c > kMaxElements) line.fail("a tensor of more than 2^31 - 1 elements");
  if (p.n > kMaxImages) line.fail("more than 65535 images");
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  const auto flip = [&] { return random() % 2 == 0; };
  Problem p{.n = draw(4), .h = 1 + draw(12), .w = draw(12), .c = 1 + draw(8)};
  p.cosine = flip();
  p.large = flip();
  p.no_clip = flip();
  p.clipped_eps = flip();
  p.steps = 1 + static_cast<int>(random() % 300);
  p.eta = flip() ? 0 : draw(100);
  p.images = flip() ? 0 : draw(12);
  return p;
}

std::vector<TensorSpec> Batch::tensors(const Problem& p) {
  const int images = p.set_size();
  return {{.name = "pixels",
           .role = Role::input,
           .dtype = Dtype::u8,
           .shape = {images, p.h, p.w, p.c},
           .layout = "nhwc",
           .high = 255},
          {.name = "index",
           .role = Role::input,
           .dtype = Dtype::i32,
           .shape = {p.n},
           .layout = "n",
           .low = -images,
           .high = images - 1},
          image("x0", Role::output, p, p.dtype)};
}

double Batch::flops(const Problem& p) { return 2.0 * static_cast<double>(p.elements()); }

Traffic Batch::traffic(const Problem& p) {
  const auto elements = static_cast<double>(p.elements());
  return {.read_bytes = elements + 4.0 * p.n, .write_bytes = elements * static_cast<double>(size_of(p.dtype))};
}

std::vector<TensorSpec> Noise::tensors(const Problem& p) {
  return {philox(), image("noise", Role::output, p, Dtype::f32)};
}

double Noise::flops(const Problem& p) { return 10.0 * static_cast<double>(p.elements()); }

std::vector<TensorSpec> QSample::tensors(const Problem& p) {
  return {
      image("x0", Role::input, p, p.dtype),
      {.name = "t", .role = Role::input, .dtype = Dtype::i32, .shape = {p.n}, .layout = "n", .high = kTimesteps - 1},
      table(kTimesteps, 2),
      philox(),
      image("x_t", Role::output, p, p.dtype),
      image("noise", Role::output, p, Dtype::f32)};
}

QSample::Tensors QSample::bind(const Pointers& at) {
  return {.x0 = at["x0"],
          .t = at.get<const std::int32_t>("t"),
          .table = at.get<const Diffused>("table"),
          .philox = at.get<const std::int64_t>("philox"),
          .x_t = at["x_t"],
          .noise = at.get<float>("noise")};
}

void QSample::derive(const Problem& p, HostTensors& inputs) {
  fill_table(inputs, diffused_table(make_schedule(betas_of(p))));
  if (p.n < 2) return;
  inputs["t"].front() = 0;
  inputs["t"].back() = kTimesteps - 1;
}

std::vector<TensorSpec> Loss::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {image("pred", Role::input, p, p.dtype), image("noise", Role::input, p, Dtype::f32),
                                   image("dpred", Role::output, p, p.dtype)};
  specs.push_back({.name = "losses", .role = Role::output, .dtype = Dtype::f32, .shape = {p.n}, .layout = "n"});
  specs.back().reduction_length = p.image();
  specs.push_back({.name = "loss", .role = Role::output, .dtype = Dtype::f32, .shape = {1}, .layout = "i"});
  specs.back().reduction_length = p.elements();
  return specs;
}

Loss::Tensors Loss::bind(const Pointers& at) {
  return {.pred = at["pred"],
          .noise = at.get<const float>("noise"),
          .dpred = at["dpred"],
          .losses = at.get<float>("losses"),
          .loss = at.get<float>("loss")};
}

std::vector<TensorSpec> DdpmStep::tensors(const Problem& p) { return step_tensors(p, true); }

DdpmStep::Tensors DdpmStep::bind(const Pointers& at) {
  return {.pred = at["pred"],
          .noise = at.get<const float>("noise"),
          .table = at.get<const StepCoefficients>("table"),
          .step = at.get<const std::int32_t>("step"),
          .x = at.get<float>("x"),
          .y = at.get<void>("y")};
}

void DdpmStep::derive(const Problem& p, HostTensors& inputs) { fill_step_table(p, SchedulerKind::ddpm, inputs); }

std::vector<TensorSpec> DdimStep::tensors(const Problem& p) { return step_tensors(p, p.eta != 0); }

DdimStep::Tensors DdimStep::bind(const Pointers& at) {
  return {.pred = at["pred"],
          .noise = at.get<const float>("noise"),
          .table = at.get<const StepCoefficients>("table"),
          .step = at.get<const std::int32_t>("step"),
          .x = at.get<float>("x"),
          .y = at.get<void>("y")};
}

void DdimStep::derive(const Problem& p, HostTensors& inputs) { fill_step_table(p, SchedulerKind::ddim, inputs); }

}  // namespace ladder::diffusion
