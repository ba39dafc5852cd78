// Policies prepared by policy(), identified by a number: queries of ladder_torch/policy.py. Answers are computed by the
// operator policy_answer.
#pragma once

#include <nlohmann/json.hpp>

namespace ladder::python {

// Prepares a policy, ends one with {"drop": number}, or reads a file or folder with {"read": path, "groups", "horizon":
// numbers that override the file's, or null}, as {"about", "groups", "horizon", "scheduler", "steps", "notes"}. Throws
// UsageError, Failure.
//     question  {"file": safetensors, "dtype", "samples", "scheduler": diffusers' fields, "timesteps": a list or null,
//               "steps": a number or null, "eta", "device", "use": true if use() chooses versions}
//     answer    {"number", "about": one line, "notes", "sizes": {"observation", "horizon", "action_dim", "steps",
//               "noise_row", "noisy", "drawn": the number of leading steps for which diffusers draws noise},
//               "operations": rows as of explain(), with "calls" per answer}
nlohmann::json ask_policy(const nlohmann::json& question);

}  // namespace ladder::python
