// denoise_policy: computes the actions of a trained policy for an observation; `./ladder denoise` builds and runs it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <optional>
#include <random>

#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "core/program.h"
#include "io/flags.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "io/text_file.h"
#include "policy/latency.h"
#include "policy/policy.h"
#include "policy/policy_file.h"
#include "policy/sampling_schedule.h"
#include "runtime/chosen_versions.h"

namespace ladder::denoise {
namespace {

struct Options {
  std::filesystem::path policy;
  std::string config;
  std::filesystem::path observation, noise, scheduler_config;
  std::filesystem::path out = "actions.npy", json;
  bool random = false, time = false, explain = false, all = false;
  std::optional<int> batch, steps, groups, horizon;
  std::string scheduler;
  double eta = 0;
  std::int64_t seed = 0;
  Dtype dtype = Dtype::f32;
  std::string use;
  bool graph = true;
  LatencyOptions latency;
};

nlohmann::json scheduler_fields(const Options& o, const PolicyFile& file) {
  if (o.scheduler_config.empty()) return file.scheduler;
  return parse_object(io::read_text(o.scheduler_config),
                      fmt::format("--scheduler-config: '{}'", o.scheduler_config.string()));
}

// Returns observations [samples, observation]: the file's, a single one repeated `batch` times, or random ones in [-1,
// 1).
std::vector<float> observations(const Options& o, int observation_size) {
  const int batch = o.batch.value_or(1);
  std::vector<float> values;
  if (o.observation.empty()) {
    std::mt19937_64 random(static_cast<std::uint64_t>(o.seed));
    values.resize(std::size_t{1} * batch * observation_size);
    for (float& value : values) value = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
    return values;
  }
  const io::FloatArray array = io::read_npy(o.observation);
  const bool rows = array.shape.size() == 2 && array.shape[0] > 0;
  if (array.shape.empty() || array.shape.size() > 2 || array.shape.back() != observation_size || array.values.empty()) {
    throw Failure(fmt::format("'{}' has shape [{}]: [{}] is expected, or [n, {}] for n observations",
                              o.observation.string(), fmt::join(array.shape, ", "), observation_size,
                              observation_size));
  }
  if (rows && array.shape[0] > 1 && o.batch && *o.batch != array.shape[0]) {
    throw UsageError(
        fmt::format("--batch {}: '{}' has {} observations", batch, o.observation.string(), array.shape[0]));
  }
  const bool repeated = !rows || array.shape[0] == 1;
  for (int i = 0; i < (repeated ? batch : 1); ++i) {
    values.insert(values.end(), array.values.begin(), array.values.end());
  }
  return values;
}

struct GivenNoise {
  std::vector<float> initial, steps;
};

GivenNoise given_noise(const Options& o, int samples, const nn::Unet1dConfig& network, const SamplingSchedule& steps) {
  const io::SafetensorsFile file(o.noise);
  const auto read = [&](const char* name, const io::Shape& shape) {
    const io::StoredTensor* const tensor = file.find(name);
    if (tensor == nullptr) throw Failure(fmt::format("'{}' has no tensor '{}'", o.noise.string(), name));
    if (tensor->shape != shape || tensor->dtype != Dtype::f32) {
      throw Failure(fmt::format("'{}': tensor '{}' is {} in {}, {} in fp32 is expected", o.noise.string(), name,
                                io::to_string(tensor->shape), tensor->dtype_name(), io::to_string(shape)));
    }
    std::vector<float> values = file.floats(name);
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      throw Failure(fmt::format("'{}': tensor '{}' has a number that is not finite", o.noise.string(), name));
    }
    return values;
  };
  io::Shape shape = {samples, network.horizon, network.action_dim};
  GivenNoise noise{.initial = read("initial", shape), .steps = {}};
  shape.insert(shape.begin(), static_cast<std::int64_t>(steps.rows.size()));
  if (steps.noisy()) noise.steps = read("steps", shape);
  return noise;
}

void time_answers(const Options& o, const PolicyFile& file, const SamplingSchedule& steps, int samples, Policy& policy,
                  const std::vector<float>& observed) {
  const std::size_t actions = std::size_t{1} * samples * file.network.horizon * file.network.action_dim;
  std::int64_t number = 0;
  const std::string how = o.latency.every_ms > 0 ? fmt::format(", one every {:g} ms", o.latency.every_ms) : "";
  if (!how.empty()) {
    fmt::print("{} answers{}: about {:.0f} s\n", o.latency.count, how, 1e-3 * o.latency.every_ms * o.latency.count);
    static_cast<void>(std::fflush(stdout));
  }
  const Latency latency = measure_latency(
      o.latency, [&] { policy.answer(observed, o.seed, ++number); }, observed.size() * sizeof(float),
      actions * sizeof(float));
  fmt::print("{} answers{}, host to host: {}\nan empty graph after each: {}\n", o.latency.count, how,
             summary(latency.answers_ms), summary(latency.empty_ms));
  if (o.json.empty()) return;
  write_latency(o.json,
                {{"dims", file.network.dims},
                 {"horizon", file.network.horizon},
                 {"action_dim", file.network.action_dim},
                 {"observation", file.network.observation},
                 {"step_channels", file.network.step_channels},
                 {"steps", steps.str()},
                 {"samples", samples},
                 {"dtype", name(o.dtype)},
                 {"step", policy.step()},
                 {"graph", o.graph},
                 {"every_ms", o.latency.every_ms}},
                latency);
  fmt::print("wrote {}\n", o.json.string());
}

// Returns the actions of the window, [samples, window.count, action_dim], from [samples, horizon, action_dim].
std::vector<float> in_window(std::span<const float> actions, const ActionWindow& window,
                             const nn::Unet1dConfig& network) {
  const std::size_t row = network.action_dim, per_sample = row * network.horizon;
  std::vector<float> cut;
  for (std::size_t begin = 0; begin < actions.size(); begin += per_sample) {
    const auto part = actions.subspan(begin + window.first * row, window.count * row);
    cut.insert(cut.end(), part.begin(), part.end());
  }
  return cut;
}

int denoise(const Options& o) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  PolicyFile file =
      o.policy.empty() ? tiny_policy() : read_policy(o.policy, {.groups = o.groups, .horizon = o.horizon});
  if (o.policy.empty()) {
    file.network.groups = o.groups.value_or(file.network.groups);
    file.network.horizon = o.horizon.value_or(file.network.horizon);
    file.network.check();
  }
  diffusion::SchedulerConfig scheduler = scheduler_of(scheduler_fields(o, file), o.scheduler, file.notes);
  scheduler.eta = o.eta;
  if (o.eta > 0 && scheduler.kind == diffusion::SchedulerKind::ddpm) {
    throw UsageError("--eta is ddim's: --scheduler ddim");
  }
  const std::optional<int> file_steps = o.scheduler_config.empty() ? file.steps : std::nullopt;
  SamplingSchedule steps(scheduler, o.steps ? o.steps : file_steps);
  const std::vector<float> observed = observations(o, file.network.observation);
  if (o.observation.empty()) file.observation = {};  // random observations are already normalised
  const int samples = static_cast<int>(observed.size()) / file.network.observation;
  if (!file.units.empty()) file.notes.push_back(file.units);
  for (const std::string& note : file.notes) fmt::print("{}\n", note);
  fmt::print("channels {}; an observation of {}; {} actions of {}; {}; {}\n", fmt::join(file.network.dims, ", "),
             file.network.observation, file.network.horizon, file.network.action_dim, steps.str(), name(o.dtype));
  const GivenNoise noise = o.noise.empty() ? GivenNoise{} : given_noise(o, samples, file.network, steps);
  const Promotions promotions = chosen_versions(o.dtype, o.use);
  if (o.explain) steps.first_only();
  Policy policy({.dtype = o.dtype,
                 .samples = samples,
                 .run = o.graph ? PolicyOptions::Run::graph : PolicyOptions::Run::launches,
                 .given_noise = !o.noise.empty()},
                file, steps, promotions);
  fmt::print("{}\n", policy.step());
  if (o.explain) {
    explain(policy.program());
    return 0;
  }
  if (!o.noise.empty()) policy.set_noise(noise.initial, noise.steps);
  const auto loaded = Clock::now();
  const std::span<const float> actions = policy.answer(observed, o.seed, 0);
  const auto seconds = [](auto time) { return std::chrono::duration<double>(time).count(); };
  fmt::print("{} answered in {:.3g} ms{}, after {:.3g} s of loading\n", samples, 1e3 * seconds(Clock::now() - loaded),
             backend::kind() == backend::Kind::emulator ? " on the emulator" : "", seconds(loaded - began));
  const ActionWindow full{0, file.network.horizon};
  const ActionWindow window = o.all ? full : file.window.value_or(full);
  io::write_npy(o.out, in_window(actions, window, file.network), {samples, window.count, file.network.action_dim});
  fmt::print("wrote {}", o.out.string());
  if (window.count < full.count) {
    fmt::print(": actions {} to {} of 0 to {}, which LeRobot executes (--all writes every one)", window.first,
               window.first + window.count - 1, full.count - 1);
  }
  fmt::print("\n");
  if (o.time) time_answers(o, file, steps, samples, policy, observed);
  return 0;
}

void check(const Options& o) {
  if (o.policy.empty() == o.config.empty()) {
    throw UsageError("name a policy's file or folder, or --config tiny, one of them");
  }
  if (!o.policy.empty() && o.observation.empty() && !o.random) {
    throw UsageError("an observation is missing: --observation FILE.npy, or --random");
  }
  if (o.time && backend::kind() == backend::Kind::emulator) {
    throw UsageError("--time is for a GPU: an emulated kernel has no speed");
  }
}

// Throws UsageError where an output file is one of the input files.
void check_outputs(const Options& o) {
  const std::pair<const char*, std::filesystem::path> outputs[] = {{"--out", o.out}, {"--json", o.json}};
  const std::pair<const char*, std::filesystem::path> inputs[] = {{"the policy", o.policy},
                                                                  {"--observation", o.observation},
                                                                  {"--noise", o.noise},
                                                                  {"--scheduler-config", o.scheduler_config},
                                                                  {"the policy", o.policy / "config.json"},
                                                                  {"the policy", o.policy / "model.safetensors"}};
  for (const auto& [flag, out] : outputs) {
    for (const auto& [input, path] : inputs) {
      std::error_code missing;
      if (!std::filesystem::equivalent(out, path, missing)) continue;
      throw UsageError(fmt::format("{} '{}' is the file of {}: name another to write", flag, out.string(), input));
    }
  }
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app("Answers with actions of a trained policy.", "denoise_policy");
  app.add_option("policy", o.policy, "a policy's safetensors file, or a folder of LeRobot's save_pretrained");
  const auto add = [&](const char* flag, auto& value, const char* limits, const char* help) {
    return app.add_option(flag, value, help)->check(io::limits(limits));
  };
  app.option_defaults()->group("what is answered");
  app.add_option("--config", o.config, "in the place of a file: a small network with made-up weights")
      ->check(io::words({"tiny"}));
  auto* const observation =
      app.add_option("--observation", o.observation, "fp32, [observation] or [n, observation]")->type_name("FILE.npy");
  app.add_flag("--random", o.random, "made-up observations")->excludes(observation);
  add("--batch", o.batch, "[1, 65535]", "observations at a time (default: as many as the file has, or 1)");
  add("--seed", o.seed, "[0, 9223372036854775807]", "of the noise")->capture_default_str();
  app.add_option("--noise", o.noise,
                 "noise in the place of the seed's: tensors initial [n, horizon, d] and steps [steps, n, horizon, d]")
      ->type_name("FILE.safetensors");
  add("--groups", o.groups, "[1, 65536]", "of normalisations (default: what the file says, or 8)");
  add("--horizon", o.horizon, "[1, 65536]", "actions of an answer (default: what the file says, or 16)");
  app.option_defaults()->group("the scheduler");
  app.add_option("--scheduler", o.scheduler, "ddpm or ddim (default: what the file says, or ddpm)")
      ->check(io::words({"ddpm", "ddim"}));
  add("--steps", o.steps, "[1, 1000000]",
      "denoising steps (default: what the file says, or as many as it was trained with)");
  add("--eta", o.eta, "[0, 1]", "ddim: 0 has no noise, 1 that of ddpm")->capture_default_str();
  app.add_option("--scheduler-config", o.scheduler_config,
                 "diffusers' scheduler_config.json, in the place of what the policy's file says")
      ->type_name("FILE.json");
  app.option_defaults()->group("how");
  io::add_choice<Dtype>(app, "--dtype", o.dtype, {{"fp32", Dtype::f32}, {"bf16", Dtype::bf16}, {"fp16", Dtype::f16}},
                        "fp32, bf16 or fp16");
  app.add_option("--use", o.use, "versions in place of promoted ones: conv1d/block=v01, policy/step=v02 or off")
      ->type_name("VERSIONS");
  io::add_choice<bool>(app, "--graph", o.graph, {{"on", true}, {"off", false}},
                       "on: an answer is one CUDA graph; off: the same bits, launch by launch");
  app.add_flag("--explain", o.explain, "print which version every operation of a step runs, and why, and leave");
  auto* const time = app.add_flag("--time", o.time, "besides: how long answers take, host to host");
  add("--answers", o.latency.count, "[1, 1000000]", "of --time")->needs(time)->capture_default_str();
  add("--every", o.latency.every_ms, "[0, 60000]",
      "of --time: milliseconds from an answer's begin to the next; 0: back to back")
      ->needs(time)
      ->capture_default_str();
  app.option_defaults()->group("what is written");
  app.add_option("--out", o.out, "actions, fp32 [n, horizon, d]")->capture_default_str()->type_name("FILE.npy");
  app.add_flag("--all", o.all, "LeRobot's folder: every action of the horizon, not only those to execute");
  app.add_option("--json", o.json, "how long each of the answers of --time took")->needs(time)->type_name("FILE.json");
  if (!io::parse(app, {argv + 1, argv + argc})) return 0;
  check_outputs(o);
  check(o);
  if (const char* reason = backend::unavailable()) throw Failure(reason);
  return denoise(o);
}

}  // namespace
}  // namespace ladder::denoise

int main(int argc, char** argv) {
  return ladder::program_status("denoise_policy", [&] { return ladder::denoise::run(argc, argv); });
}
