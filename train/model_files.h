// Conversion between a training's state and files: checkpoints to resume from, weights from and for PyTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nn/state.h"
#include "train/checkpoint.h"
#include "train/training_config.h"

namespace ladder::train {

// Names and shapes of the parameters' tensors in files.
std::vector<ExpectedTensor> expected_tensors(const nn::Parameters& parameters);

// file_values() returns a parameter from a flat buffer in PyTorch's layout; set_file_values() does the reverse, and
// throws Failure where `values` has another number of elements.
std::vector<float> file_values(const nn::Parameter& p, const std::vector<float>& flat);
void set_file_values(const nn::Parameter& p, const std::vector<float>& values, std::vector<float>& flat);

// Reads a file of weights into a flat buffer; see import_weights(). Throws Failure also where a weight is not finite.
std::vector<float> read_weights(const std::filesystem::path& file, const nn::Parameters& parameters);

// Progress of a training as stored in a checkpoint, besides state and configuration.
struct Progress {
  std::int64_t step = 0;
  std::int64_t skipped = 0;  // updates skipped because gradients were not finite
  std::string data_digest;
  std::string promotions;
  std::string device;
  int ranks = 1;
};

struct Resumed : Progress {
  TrainingConfig config;             // of the training up to the checkpoint
  std::vector<std::string> damaged;  // why newer checkpoints were passed over, a line each
};

std::filesystem::path save_checkpoint(const std::filesystem::path& run, const TrainingConfig& config,
                                      const nn::Parameters& parameters, const nn::State& state,
                                      const Progress& progress, int keep);

// Sets the state to the newest checkpoint that is not damaged. Throws Failure where the checkpoint's model differs from
// the configuration's.
Resumed resume(const std::filesystem::path& run, const TrainingConfig& config, const nn::Parameters& parameters,
               nn::State& state);

// Returns a digest of the weights and their average.
std::string weights_digest(const nn::State& state);

// The configuration that a checkpoint was trained with. Throws Failure where there is none.
TrainingConfig config_of(const io::Metadata& metadata);

// A grid of images [n, side, side, 3] from -1 to 1, as a PNG.
void write_grid(const std::filesystem::path& file, const std::vector<float>& images, int side);

}  // namespace ladder::train
