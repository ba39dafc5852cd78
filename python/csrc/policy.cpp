#include "python/csrc/policy.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/backend.h"
#include "policy/policy.h"
#include "python/csrc/plans.h"

namespace ladder::python {
namespace {

using denoise::PolicyFile;
using denoise::SamplingSchedule;
using nlohmann::json;

SamplingSchedule steps_of(PolicyFile& file, const json& question) {
  diffusion::SchedulerConfig scheduler = denoise::scheduler_of(question.at("scheduler"), "", file.notes);
  scheduler.eta = question.at("eta").get<double>();
  const bool is_ddpm = scheduler.kind == diffusion::SchedulerKind::ddpm;
  if (scheduler.eta < 0 || scheduler.eta > 1 || (is_ddpm && scheduler.eta > 0)) {
    throw UsageError(fmt::format("eta {}: from 0 to 1, and 0 for ddpm", scheduler.eta));
  }
  if (const json& timesteps = question.at("timesteps"); !timesteps.is_null()) {
    file.notes.push_back(fmt::format("{} steps: as the scheduler's set_timesteps() chose", timesteps.size()));
    return {scheduler, timesteps.get<std::vector<int>>()};
  }
  const bool all = question.at("steps").is_null();
  return {scheduler, all ? std::nullopt : std::optional(question.at("steps").get<int>())};
}

struct Prepared {
  Prepared(const json& question, const CurrentDevice& on)
      : device(question.at("device").get<int>()),
        samples(question.at("samples").get<int>()),
        dtype(parse_dtype(question.at("dtype").get<std::string>()).value()),
        promotions(question.at("use").get<bool>() ? Choices::instance().table(on.number())
                                                  : Promotions::for_device(backend::device().slug)),
        file(denoise::read_policy(question.at("file").get<std::string>(), {})),
        steps(steps_of(file, question)),
        policy({.dtype = dtype, .samples = samples, .given_noise = true}, file, steps, promotions) {
    file.weights.clear();  // the policy has its own copy
  }

  json describe() const {
    return {{"about", fmt::format("{}, {}, of {} at a time; {}", steps.str(), name(dtype), samples, policy.step())},
            {"notes", file.notes},
            {"sizes",
             {{"observation", file.network.observation},
              {"horizon", file.network.horizon},
              {"action_dim", file.network.action_dim},
              {"steps", steps.rows.size()},
              {"noise_row", policy.noise_row()},
              {"noisy", steps.noisy()},
              {"drawn", steps.num_drawn()}}},
            {"operations", operations()}};
  }

  // The operations of an answer as rows of explain(), one for each different problem.
  json operations() const {
    const auto& all = policy.program().tape().operations();
    std::deque<Choice> choices;
    std::map<std::pair<const Pass*, std::string>, Choice*> known;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Case& problem = all[i].problem;
      Choice*& choice = known[{problem.pass, problem.text}];
      if (choice == nullptr) {
        const VersionChoice& chosen = policy.program().choice(i);
        choice = &choices.emplace_back();
        choice->pass = problem.pass;
        choice->problem = problem.text;
        choice->device = device;
        choice->version = chosen.version;
        choice->reason = chosen.reason;
      }
      ++choice->calls;
    }
    return rows_of(choices);
  }

  int device;  // PyTorch's device index, -1 for the CPU
  int samples;
  Dtype dtype;
  Promotions promotions;
  PolicyFile file;
  SamplingSchedule steps;
  denoise::Policy policy;
};

class Policies {
 public:
  std::int64_t add(std::shared_ptr<Prepared> prepared) {
    const std::lock_guard lock(mutex_);
    prepared_[++last_] = std::move(prepared);
    return last_;
  }

  std::shared_ptr<Prepared> find(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = prepared_.find(number);
    if (found == prepared_.end()) throw UsageError(fmt::format("there is no policy {}", number));
    return found->second;
  }

  void drop(std::int64_t number) {
    std::shared_ptr<Prepared> ended = find(number);
    {
      const std::lock_guard lock(mutex_);
      prepared_.erase(number);
    }
    const CurrentDevice device(ended->device);
    ended.reset();
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::shared_ptr<Prepared>> prepared_;
  std::int64_t last_ = 0;
};

Policies& policies() {
  static auto* const all = new Policies;  // never destroyed: the driver may be unloaded at process exit
  return *all;
}

std::optional<int> number(const json& question, const char* key) {
  return question.at(key).is_null() ? std::nullopt : std::optional(question.at(key).get<int>());
}

// Reads a file or a folder as ./ladder denoise does before an answer. No device is needed.
json read_policy(const json& question) {
  PolicyFile file =
      denoise::read_policy(question.at("read").get<std::string>(),
                           {.groups = number(question, "groups"), .horizon = number(question, "horizon")});
  const SamplingSchedule steps(denoise::scheduler_of(file.scheduler, "", file.notes), file.steps);
  const nn::Unet1dConfig& network = file.network;
  if (!file.units.empty()) file.notes.push_back(file.units);
  return {{"about", fmt::format("actions of {}, observations of {}, channels {}, {} taps, {} groups, horizon {}, {}",
                                network.action_dim, network.observation, fmt::join(network.dims, ", "), network.taps,
                                network.groups, network.horizon, steps.str())},
          {"groups", network.groups},
          {"horizon", network.horizon},
          {"scheduler", file.scheduler},
          {"steps", file.steps ? json(*file.steps) : json()},
          {"notes", file.notes}};
}

// Operator policy_answer. condition [samples, observation] is Mish of the observations, initial [samples, horizon,
// action_dim] the initial noise, steps [steps, noise_row] the steps' noise ([0, noise_row] where no step has noise).
// Returns actions [samples, horizon, action_dim]. All are fp32.
Tensor policy_answer(const Tensor& given_condition, const Tensor& given_initial, const Tensor& given_steps,
                     std::int64_t number) {
  const std::shared_ptr<Prepared> prepared = policies().find(number);
  const nn::Unet1dConfig& network = prepared->file.network;
  const auto noise_row = static_cast<std::int64_t>(prepared->policy.noise_row());
  const auto num_steps = prepared->steps.noisy() ? static_cast<std::int64_t>(prepared->steps.rows.size()) : 0;
  expect(given_condition.scalar_type() == ScalarType::Float && given_condition.get_device() == prepared->device &&
             fits(given_condition, {prepared->samples, network.observation}, given_condition) &&
             fits(given_initial, {prepared->samples, network.horizon, network.action_dim}, given_condition) &&
             fits(given_steps, {num_steps, noise_row}, given_condition),
         "policy_answer");
  const Tensor condition = to_contiguous(given_condition), initial = to_contiguous(given_initial);
  const Tensor steps = to_contiguous(given_steps), actions = new_like(initial);
  const ScalarType stored = prepared->dtype == Dtype::bf16  ? ScalarType::BFloat16
                            : prepared->dtype == Dtype::f16 ? ScalarType::Half
                                                            : ScalarType::Float;
  const Tensor rounded = as_type(initial, stored);
  const CurrentDevice device(prepared->device);
  prepared->policy.enqueue({.condition = static_cast<const float*>(data(condition)),
                            .initial = static_cast<const float*>(data(initial)),
                            .rounded = data(rounded),
                            .steps = static_cast<const float*>(data(steps)),
                            .actions = static_cast<float*>(actions.mutable_data_ptr())},
                           device.stream());
  return actions;
}

LADDER_OPERATORS(m) { m.impl("policy_answer", TORCH_BOX(&policy_answer)); }

}  // namespace

json ask_policy(const json& question) {
  if (question.contains("read")) return read_policy(question);
  if (question.contains("drop")) {
    policies().drop(question.at("drop").get<std::int64_t>());
    return nullptr;
  }
  const CurrentDevice device(question.at("device").get<int>());
  auto prepared = std::make_shared<Prepared>(question, device);
  json told = prepared->describe();
  told["number"] = policies().add(std::move(prepared));
  return told;
}

}  // namespace ladder::python
