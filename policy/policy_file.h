// A trained policy's file: safetensors with the network's weights under the published names or LeRobot's names. Sizes
// are read from the tensors' shapes. Properties that shapes do not determine are in the metadata's "ladder.policy/1", a
// JSON object {"groups", "horizon", "scheduler", "steps"}; "scheduler" has the fields of diffusers'
// scheduler_config.json. A folder is one that LeRobot's save_pretrained wrote (lerobot_folder.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nn/models/unet1d_config.h"
#include "nn/models/unet1d_weights.h"

namespace ladder::denoise {

inline constexpr const char* kMetadataKey = "ladder.policy/1";

// y = scale * x + offset, elementwise; empty: identity
struct Affine {
  std::vector<double> scale, offset;
};

// The actions of an answer that a robot executes.
struct ActionWindow {
  int first, count;
};

struct PolicyFile {
  nn::Unet1dConfig network;
  nn::PublishedWeights weights;                         // finite
  Affine observation;                                   // from the robot's units to the network's
  Affine action;                                        // from the network's units to the robot's
  std::optional<ActionWindow> window;                   // none: all of the horizon
  std::optional<int> steps;                             // of denoising; none: as many as the scheduler was trained with
  nlohmann::json scheduler = nlohmann::json::object();  // diffusers' fields that the file has
  std::string units;               // a note where actions are normalised instead of in the robot's units
  std::vector<std::string> notes;  // messages for the user: defaults taken, tensors ignored
};

// Values of the command line that override the metadata.
struct Given {
  std::optional<int> groups, horizon;
};

// Reads a policy's file or folder. Throws Failure, one line with the file and the error, or UsageError where a value of `given` is
// wrong.
PolicyFile read_policy(const std::filesystem::path& path, const Given& given);

// Reads a policy's safetensors file.
PolicyFile read_policy_file(const std::filesystem::path& path, const Given& given);

// Returns a small policy with made-up weights and 10 steps.
PolicyFile tiny_policy();

// Parses a JSON object. Throws Failure, one line that begins with `what`.
nlohmann::json parse_object(const std::string& text, const std::string& what);

}  // namespace ladder::denoise
