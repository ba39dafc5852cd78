// A trained policy's file: safetensors with the network's weights as they are published, or as LeRobot publishes them.
// Sizes are read from the tensors' shapes. What shapes do not say is in the metadata's "ladder.policy/1", a JSON object
// {"groups", "horizon", "scheduler"}, the last one of which has the fields of diffusers' scheduler_config.json.
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

// normalised = scale * value + offset, for every number of a step; empty: the same
struct Normalizer {
  std::vector<float> scale, offset;
};

struct PolicyFile {
  nn::Unet1dConfig network;
  nn::PublishedWeights weights;  // finite
  Normalizer observation, action;
  nlohmann::json scheduler = nlohmann::json::object();  // diffusers' fields, as far as the file has them
  std::string units;               // a sentence where actions are not those of the robot, but normalised
  std::vector<std::string> notes;  // what a person should know: defaults that were taken, what was left alone
};

// What a command line says in the place of the metadata.
struct Given {
  std::optional<int> groups, horizon;
};

// Throws Failure, one line that names the file and what is wrong with it; UsageError for what is given.
PolicyFile read_policy(const std::filesystem::path& path, const Given& given);

// A small one with made-up weights, of 10 steps.
PolicyFile tiny_policy();

// A JSON object. Throws Failure, one line that begins with `what`.
nlohmann::json parse_object(const std::string& text, const std::string& what);

}  // namespace ladder::denoise
