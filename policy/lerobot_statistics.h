// LeRobot's normalisation of observations and actions. save_pretrained keeps the statistics in one of two places:
//     buffers   model.safetensors: normalize_inputs.buffer_observation_state.min, unnormalize_outputs.buffer_action.max
//     pipeline  policy_preprocessor.json and policy_postprocessor.json, whose steps name a safetensors file: action.min
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "policy/policy_file.h"

namespace ladder::denoise {

// An input or output of a policy: "observation.state", "STATE", 14 numbers.
struct Feature {
  std::string name, type;
  int size;
};

struct Statistics {
  std::string mode = "IDENTITY";       // LeRobot's NormalizationMode: MEAN_STD, MIN_MAX, QUANTILES, QUANTILE10
  std::vector<double> center, spread;  // [size]: mean and std, or the two ends: min and max, q01 and q99
  double eps = 1e-8;
  // Rule for eps, which keeps divisors from 0. Buffers: added to every divisor of a normalisation, absent from its
  // inverse. Pipeline: takes the place of max - min where this is 0, in both directions; added to every std.
  bool adds_eps = false;
};

// The maps that LeRobot applies to an observation and to an action. Identity gives scale 1 and offset 0.
Affine normalization(const Statistics& statistics, int size);
Affine unnormalization(const Statistics& statistics, int size);

// Returns the statistics of a feature from the buffers of `module`, "normalize_inputs" or "unnormalize_outputs"; none if
// `model` has no such buffers. `config` is the folder's config.json. Throws Failure.
std::optional<Statistics> buffer_statistics(const io::SafetensorsFile& model, const nlohmann::json& config,
                                            const std::string& module, const Feature& feature);

// A pipeline's JSON file, such as policy_postprocessor.json.
class Pipeline {
 public:
  // Reads the file and finds the step `step_name`, "unnormalizer_processor". Throws Failure.
  Pipeline(const std::filesystem::path& file, const std::string& step_name);

  // Returns the step's statistics of a feature; none where LeRobot leaves the feature as it is for want of them. Throws
  // Failure.
  std::optional<Statistics> statistics(const Feature& feature) const;

  // Names of the other steps that change numbers.
  const std::vector<std::string>& other_steps() const { return other_steps_; }

 private:
  std::string shown_;
  nlohmann::json config_;
  std::optional<io::SafetensorsFile> state_;
  bool has_step_ = false;
  std::vector<std::string> other_steps_;
};

}  // namespace ladder::denoise
