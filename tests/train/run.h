// Trainings of a one-level model, each in its own folder.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "nn/models/unet2d.h"
#include "tests/files.h"
#include "tests/train/data_file.h"
#include "train/model_files.h"
#include "train/training.h"

namespace ladder::train::test {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ladder::test::contents;
using ladder::test::Ended;
using ladder::test::has;
using ladder::test::message_of;
using ladder::test::put;
using ladder::test::Scratch;
using ladder::test::with_file_limit;
using test::put_images;

inline constexpr int kSide = 8;
inline constexpr const char* kFiles[] = {"model.safetensors", "ema.safetensors", "optimizer.safetensors"};

inline TrainingConfig small_config() {
  return {
      .name = "small",
      .model = {.image_size = kSide, .channels = 32, .channel_mult = {1}, .res_blocks = 1, .attention_resolutions = {}},
      .dtype = Dtype::bf16,
      .steps = 4,
      .batch = 2,
      .learning_rate = 1e-3,
      .ema_rate = 0.5,
      .ema_ramp = false,  // a ramp would make the first steps' average equal the weights
      .flip = true,
      .seed = 5};
}

inline nn::Parameters small_parameters() { return nn::Parameters(nn::Unet2d(small_config().model).declare()); }

// Expect equal checkpoint files of two runs at a step, byte for byte: state, configuration and progress.
inline void expect_same_step(const fs::path& a, const fs::path& b, int step) {
  const std::string folder = "step_0000000" + std::to_string(step);
  for (const char* file : kFiles) {
    const bool same = contents(a / "checkpoints" / folder / file) == contents(b / "checkpoints" / folder / file);
    EXPECT_TRUE(same) << folder << "/" << file << " of " << b.filename();
  }
}

inline std::vector<Json> log_of(const fs::path& run) {
  std::istringstream text(contents(run / "log.jsonl"));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

inline std::vector<double> losses_of(const fs::path& run) {
  std::vector<double> losses;
  for (const Json& line : log_of(run)) {
    if (line.contains("loss")) losses.push_back(line.at("loss"));
  }
  return losses;
}

inline std::map<std::string, std::vector<float>> weights_of(const fs::path& run, int step,
                                                            const char* file = kFiles[0]) {
  const nn::Parameters parameters = small_parameters();
  return import_weights(run / "checkpoints" / ("step_0000000" + std::to_string(step)) / file,
                        expected_tensors(parameters));
}

// Fixture with five training images, so that the third step reaches the second epoch, and three held-out images, more
// than a batch.
class Training : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  }

  static const fs::path& folder() {
    static const Scratch scratch;
    return scratch.path();
  }
  static const fs::path& data() {
    static const fs::path file = [] {
      put_images(folder() / "images.ldata", kSide, 8, 3);
      return folder() / "images.ldata";
    }();
    return file;
  }

  static TrainingOptions options(const std::string& name) {
    return {
        .data = data(), .out = folder() / name, .log_every = 1, .held_out_every = 0, .checkpoint_every = 2, .keep = 10};
  }

  // Returns the reference training's folder: four steps without interruption, checkpoints after the second and the
  // fourth.
  static const fs::path& reference() {
    static const fs::path run = [] {
      train(small_config(), options("reference"));
      return folder() / "reference";
    }();
    return run;
  }

  // Returns the output that a training prints.
  template <class Action>
  static std::string printed(const Action& action) {
    std::fflush(stdout);
    testing::internal::CaptureStdout();
    try {
      action();
    } catch (...) {
      std::fflush(stdout);
      testing::internal::GetCapturedStdout();
      throw;
    }
    std::fflush(stdout);
    return testing::internal::GetCapturedStdout();
  }
};

}  // namespace ladder::train::test
