#include "policy/one_kernel_step.h"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "dev/policy/layout.h"
#include "nn/models/unet1d_layers.h"
#include "nn/parameters.h"
#include "nn/state.h"

namespace ladder::denoise {
namespace {

// Returns the problem of policy/step. Throws UsageError where policy/step does not support the network.
policy::Problem problem_of(const nn::Unet1dConfig& config, const SamplingSchedule& steps, Dtype dtype, int samples) {
  if (!config.scale) throw UsageError("a condition that shifts channels and does not scale them");
  if (config.levels() > policy::kMaxLevels) throw UsageError(fmt::format("more than {} levels", policy::kMaxLevels));
  // nn::Parameters pads each layer's FiLM rows to kAlignment elements; policy/step has no padding. A width that is a
  // multiple of kUnit needs none, because a layer has two rows (scale and shift) per channel.
  constexpr int kUnit = nn::kAlignment / 2;
  if (std::ranges::any_of(config.dims, [](int width) { return width % kUnit != 0; })) {
    throw UsageError(fmt::format("channels of a level that are no multiple of {}", kUnit));
  }
  policy::Problem p{.n = samples,
                    .l = config.horizon,
                    .d = config.action_dim,
                    .levels = config.levels(),
                    .taps = config.taps,
                    .groups = config.groups,
                    .steps = static_cast<int>(steps.rows.size()),
                    .ddim = steps.config.kind == diffusion::SchedulerKind::ddim,
                    .dtype = dtype};
  std::ranges::copy(config.dims, p.dims);
  return policy::Problem::parse(p.str());  // checks the limits
}

// Returns the reason why neither --use nor a record selects policy/step for `c`, or an empty string where one does.
std::string why_not_one_kernel(const Case& c, int samples, const Promotions& promotions) {
  const std::string path = c.pass->path();
  if (promotions.is_off(*c.pass)) return fmt::format("--use {}=off", path);
  if (const auto used = promotions.used().find(c.pass); used != promotions.used().end()) {
    const std::string reason = ladder::why_not(*used->second, c);
    return reason.empty() ? "" : fmt::format("--use {} {} cannot: {}", path, used->second->label(), reason);
  }
  std::string reason = fmt::format("no record of {} in {}", path, name(c.dtype));
  if (samples > 1) reason += fmt::format(" for {} observations", samples);
  for (const Promotions::Line& line : promotions.lines()) {
    if (line.problem.pass != c.pass || line.problem.dtype != c.dtype) continue;
    if (samples > 1 && ladder::problem_of<policy::Step>(line.problem).n != samples) continue;
    const std::string cannot = ladder::why_not(*line.version, c);
    if (cannot.empty()) return {};
    reason = fmt::format("{} {} cannot: {}", path, line.version->label(), cannot);
  }
  return reason;
}

// Published names of a stage's convolution, its normalisation and its residual convolution; empty where it has none.
struct StageNames {
  std::string conv, norm = {}, residual = {};
};

// The names of all stages, in the order of dev/policy/layout.h.
std::vector<StageNames> stage_names(const nn::Unet1dLayers& layers) {
  std::vector<StageNames> stages;
  const auto add_block = [&](const std::string& name, const std::string& residual) {
    stages.push_back({.conv = name + ".block.0", .norm = name + ".block.1", .residual = residual});
  };
  const auto add_level = [&](const nn::Level1d& level) {
    for (const nn::ResidualBlock1d& block : level.blocks) {
      add_block(block.name + ".blocks.0", {});
      add_block(block.name + ".blocks.1", block.projects() ? block.name + ".residual_conv" : "");
    }
    if (!level.resample.empty()) stages.push_back({.conv = level.resample});
  };
  std::ranges::for_each(layers.down, add_level);
  add_level(layers.middle);
  std::ranges::for_each(layers.up, add_level);
  add_block("final_conv.0", {});
  stages.push_back({.conv = "final_conv.1"});
  return stages;
}

struct Packed {
  std::vector<float> weights, vectors;
};

Packed pack(const policy::Network& network, const nn::Unet1dConfig& config, const nn::PublishedWeights& published) {
  Packed packed{.weights = std::vector<float>(network.weights), .vectors = std::vector<float>(network.vectors)};
  const auto put_vector = [&](const std::string& name, int offset, int count) {
    const std::vector<float>& values = published.at(name);
    LADDER_CHECK(static_cast<int>(values.size()) == count, name);
    std::ranges::copy(values, packed.vectors.begin() + offset);
  };
  const auto put_convolution = [&](const std::string& name, const conv1d::Problem& conv, int weights, int bias) {
    const std::vector<float>& values = published.at(name + ".weight");
    std::vector<std::int64_t> shape = {conv.k, conv.c, conv.taps};
    if (conv.transposed) std::swap(shape[0], shape[1]);
    LADDER_CHECK(std::ssize(values) == shape[0] * shape[1] * shape[2], name);
    nn::pack_conv(values, shape, conv.transposed, 0, conv.c, packed.weights.data() + weights);
    put_vector(name + ".bias", bias, conv.k);
  };

  const std::vector<StageNames> names = stage_names(nn::Unet1dLayers(config));
  LADDER_CHECK(std::ssize(names) == network.count);
  for (int i = 0; i < network.count; ++i) {
    const policy::Stage& stage = network.stages[i];
    put_convolution(names[i].conv, stage.convolution(1), stage.weights, stage.bias);
    LADDER_CHECK(names[i].norm.empty() == (stage.groups == 0), names[i].conv);
    LADDER_CHECK(names[i].residual.empty() == (stage.residual != policy::Residual::convolution), names[i].conv);
    if (!names[i].norm.empty()) {
      put_vector(names[i].norm + ".weight", stage.gamma(), stage.k);
      put_vector(names[i].norm + ".bias", stage.beta(), stage.k);
    }
    if (!names[i].residual.empty()) {
      put_convolution(names[i].residual, network.stages[i - 1].widened(1, stage.k), stage.residual_weights,
                      stage.residual_bias);
    }
  }
  return packed;
}

}  // namespace

std::string StepChoice::str() const {
  return one_kernel ? fmt::format("a step is one kernel, policy/step {}: {}", version, reason)
                    : fmt::format("a step is the network's operations, one after the other: {}", reason);
}

StepChoice StepChoice::refused(const std::string& why) const {
  return {.one_kernel = {}, .version = {}, .reason = fmt::format("policy/step {} cannot: {}", version, why)};
}

StepChoice choose_step(const nn::Unet1dConfig& config, const SamplingSchedule& steps, Dtype dtype, int samples,
                       const Promotions& promotions) {
  StepChoice choice;
  try {
    const policy::Problem problem = problem_of(config, steps, dtype, samples);
    const Case c = case_of<policy::Step>(problem);
    choice.reason = why_not_one_kernel(c, samples, promotions);
    if (!choice.reason.empty()) return choice;
    const VersionChoice chosen = promotions.choose(c);
    choice = {.one_kernel = problem, .version = chosen.version->label(), .reason = chosen.reason};
  } catch (const UsageError& error) {
    choice.reason = fmt::format("policy/step has none with {}", error.what());
  }
  return choice;
}

OneKernelStep::OneKernelStep(const policy::Problem& problem, const nn::Unet1dConfig& config,
                             const nn::PublishedWeights& published)
    : problem_(problem),
      film_row_(policy::network_of(problem).film_row),
      weights_("weights of a step", policy::network_of(problem).weights * size_of(problem.dtype)),
      vectors_("biases and norms of a step", policy::network_of(problem).vectors * sizeof(float)) {
  const Packed packed = pack(policy::network_of(problem), config, published);
  nn::copy_rounded(packed.weights, problem.dtype, weights_);
  nn::copy_rounded(packed.vectors, Dtype::f32, vectors_);
}

void OneKernelStep::append(Tape& tape, const Operands& operands) const {
  const auto fixed = [&](const char* name, Dtype dtype, const OwnedRegion& region) {
    return tape.value(name, dtype, {static_cast<std::int64_t>(region.bytes / size_of(dtype))}, region);
  };
  tape.run<policy::Step>("step", problem_,
                         {{"weights", fixed("weights", problem_.dtype, weights_)},
                          {"vectors", fixed("vectors", Dtype::f32, vectors_)},
                          {"film_table", operands.film_table},
                          {"film", operands.film},
                          {"table", operands.table},
                          {"step", operands.step},
                          {"noise", operands.noise},
                          {"x", operands.x}});
}

}  // namespace ladder::denoise
