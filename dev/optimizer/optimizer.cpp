#include "dev/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

#include "core/near_nominal.h"
#include "core/problem_line.h"

namespace ladder::optimizer {
namespace {

TensorSpec flat(const char* name, Role role, const Problem& p, double stddev = 1) {
  return {.name = name, .role = role, .dtype = Dtype::f32, .shape = {p.p}, .layout = "p", .stddev = stddev};
}

// Gradients that norm and adamw read: d, if mixed, and g.
std::vector<TensorSpec> gradients(const Problem& p) {
  std::vector<TensorSpec> specs;
  if (p.mixed > 0) {
    specs.push_back(flat("d", Role::input, p));
    specs.back().dtype = p.dtype;
    specs.back().shape = {p.mixed};
  }
  specs.push_back(flat("g", Role::input, p));
  specs.back().shape = {p.p - p.mixed};
  return specs;
}

TensorSpec numbers(const char* name, Role role, int count) {
  return {.name = name, .role = role, .dtype = Dtype::f32, .shape = {count}, .layout = "i"};
}

// Hyperparameters that make every term show: an update of a tenth of the parameters, an eps beyond rounding errors.
Hyper shown(const Problem& p) {
  return {.lr = 0.1f,
          .one_minus_beta1 = 0.1f,
          .one_minus_beta2 = 0.001f,
          .eps = 1e-3f,
          .weight_decay = 0.1f,
          .one_minus_ema_rate = 0.1f,
          .step = static_cast<float>(1 + p.p % 5),
          .max_norm = static_cast<float>(0.3 * std::sqrt(static_cast<double>(p.p)))};
}

// Set hyper to these values, each a little off by what was drawn for it, so that no two launches have the same.
void set_hyper(const Problem& p, HostTensors& inputs) {
  const Hyper h = shown(p);
  const auto* const right = reinterpret_cast<const float*>(&h);
  std::vector<float>& drawn = inputs["hyper"];
  for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = near_nominal(right[i], drawn[i]);
  drawn[offsetof(Hyper, step) / sizeof(float)] = h.step;
}

constexpr int kHyper = sizeof(Hyper) / sizeof(float);

}  // namespace

std::string Problem::str() const {
  return 'p' + std::to_string(p) + " tensors" + std::to_string(tensors) + (clip ? " clip" : "") +
         (parts == 1 ? "" : " parts" + std::to_string(parts)) + (first ? " first" : "") +
         (mixed == 0 ? "" : " mixed" + std::to_string(mixed)) + ' ' + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "p20494211 tensors326 [clip] [parts4] [first] [mixed19414400] [fp32|bf16|fp16]");
  // Kernels index elements with 32 bits.
  constexpr std::int64_t kMaxElements = 2147483647;
  Problem p;
  p.p = line.size("p", 1, kMaxElements);
  p.tensors = static_cast<int>(line.size("tensors", 1, 1 << 20));
  p.clip = line.flag("clip");
  p.parts = static_cast<int>(line.size_or("parts", 1, 1, 1 << 20));
  p.first = line.flag("first");
  p.mixed = line.size_or("mixed", 0, 1, kMaxElements);
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  if (p.p < p.tensors) line.fail("a tensor without parameters");
  if (p.mixed >= p.p) line.fail("no parameter without its gradient in d");
  return p;
}

std::vector<std::int64_t> Problem::tensor_begins() const {
  const auto relative_size = [](int i) { return 1.0 + (static_cast<std::uint32_t>(i) * 2654435761u >> 22); };
  double total = 0;
  for (int i = 0; i < tensors; ++i) total += relative_size(i);
  std::vector<std::int64_t> begins;
  double before = 0;
  for (int i = 0; i < tensors; ++i) {
    begins.push_back(i + static_cast<std::int64_t>(static_cast<double>(p - tensors) * (before / total)));
    before += relative_size(i);
  }
  begins.push_back(p);
  return begins;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  const int tensors = draw(20);
  Problem p{.p = tensors + draw(20000), .tensors = tensors, .clip = random() % 2 == 0};
  p.parts = 1 + draw(8);
  p.first = random() % 2 == 0;
  if (random() % 2 == 0) p.mixed = draw(static_cast<int>(p.p) - 1);
  if (random() % 2 == 0) p.mixed = p.mixed / 4 * 4;
  return p;
}

std::vector<TensorSpec> Accumulate::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {flat("d", Role::input, p), flat("g", p.first ? Role::output : Role::inout, p)};
  specs.front().dtype = p.dtype;
  return specs;
}

double Accumulate::flops(const Problem& p) { return 2.0 * static_cast<double>(p.p); }

std::vector<TensorSpec> Norm::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = gradients(p);
  specs.push_back(numbers("hyper", Role::input, kHyper));
  for (const char* name : {"norm", "scale"}) {
    specs.push_back(numbers(name, Role::output, 1));
    specs.back().reduction_length = p.p;
  }
  return specs;
}

Norm::Tensors Norm::bind(const Pointers& at) {
  return {.d = at.get<const void>("d"),
          .g = at.get<const float>("g"),
          .hyper = at.get<const Hyper>("hyper"),
          .norm = at.get<float>("norm"),
          .scale = at.get<float>("scale")};
}

double Norm::flops(const Problem& p) { return 2.0 * static_cast<double>(p.p); }

void Norm::derive(const Problem& p, HostTensors& inputs) {
  set_hyper(p, inputs);
  // Let TF32's rounding make every gradient smaller, by a fifth of a unit in its last place: one sum is made of many
  // squares, which would average out errors of either sign.
  const auto shrinks = [](std::vector<float>& gradients) {
    for (float& g : gradients) g = round_to(Dtype::tf32, g) * (1 + 0.2f * 0x1p-10f);
  };
  shrinks(inputs["g"]);
  if (p.mixed > 0 && p.dtype == Dtype::f32) shrinks(inputs["d"]);
}

std::vector<TensorSpec> AdamW::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = gradients(p);
  for (TensorSpec& spec : std::vector<TensorSpec>{
           numbers("scale", Role::input, 1), numbers("hyper", Role::input, kHyper), flat("p", Role::inout, p),
           flat("m", Role::inout, p, 0.3), flat("v", Role::inout, p, 0.001), flat("ema", Role::inout, p)}) {
    specs.push_back(std::move(spec));
  }
  if (size_of(p.dtype) == 2) {
    specs.push_back(flat("w", Role::output, p));
    specs.back().dtype = p.dtype;
  }
  return specs;
}

AdamW::Tensors AdamW::bind(const Pointers& at) {
  return {.d = at.get<const void>("d"),
          .g = at.get<const float>("g"),
          .scale = at.get<const float>("scale"),
          .hyper = at.get<const Hyper>("hyper"),
          .p = at.get<float>("p"),
          .m = at.get<float>("m"),
          .v = at.get<float>("v"),
          .ema = at.get<float>("ema"),
          .w = at.get<void>("w")};
}

double AdamW::flops(const Problem& p) { return 20.0 * static_cast<double>(p.p); }

void AdamW::derive(const Problem& p, HostTensors& inputs) {
  set_hyper(p, inputs);
  inputs["scale"][0] = near_nominal(p.clip ? 0.3f : 1.0f, inputs["scale"][0]);
  for (float& v : inputs["v"]) v = std::abs(v);
}

}  // namespace ladder::optimizer
