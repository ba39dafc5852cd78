// Policies that policy() has prepared, known by number: what ladder_torch/policy.py asks of them besides answers, which are
// the operator policy_answer.
#pragma once

#include <nlohmann/json.hpp>

namespace ladder::python {

// {"file": safetensors, "dtype", "samples", "scheduler": diffusers' fields, "timesteps": a list or null, "steps": a number or
// null, "eta", "device", "use": whether use() chooses versions} prepares one: {"number", "about": one line, "notes",
// "sizes": {"observation", "horizon", "action_dim", "steps", "noise_row", "noisy", "drawn": the number of steps, from the first,
// that diffusers draws noise for}, "operations": rows as of explain(), "calls" those of an answer}. {"drop": number} ends one.
// Throws UsageError, Failure.
nlohmann::json ask_policy(const nlohmann::json& question);

}  // namespace ladder::python
