// A training from beginning to end, of a model of one level: interrupted, streamed, watched, diverging, on a full disk.
#include "train/training.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "tests/train/data_file.h"
#include "tests/train/files.h"
#include "train/model_files.h"

namespace ladder::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ladder::test::contents;
using ladder::test::Ended;
using ladder::test::message_of;
using ladder::test::put;
using ladder::test::Scratch;
using ladder::test::with_file_limit;
using test::put_images;

constexpr int kSide = 8;
constexpr const char* kFiles[] = {"model.safetensors", "ema.safetensors", "optimizer.safetensors"};

TrainingConfig small_config() {
  return {
      .name = "small",
      .model = {.image_size = kSide, .channels = 32, .channel_mult = {1}, .res_blocks = 1, .attention_resolutions = {}},
      .dtype = Dtype::bf16,
      .steps = 4,
      .batch = 2,
      .learning_rate = 1e-3,
      .ema_rate = 0.5,
      .ema_ramp = false,  // which would make the average of the first steps the weights themselves
      .flip = true,
      .seed = 5};
}

testing::AssertionResult has(const std::string& text, const std::string& words) {
  if (text.find(words) != text.npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' says nothing of '" << words << "'";
}

// Checkpoints' files of the same step are equal byte for byte: state, configuration and progress.
void expect_same_step(const fs::path& a, const fs::path& b, int step) {
  const std::string folder = "step_0000000" + std::to_string(step);
  for (const char* file : kFiles) {
    const bool same = contents(a / "checkpoints" / folder / file) == contents(b / "checkpoints" / folder / file);
    EXPECT_TRUE(same) << folder << "/" << file << " of " << b.filename();
  }
}

std::vector<Json> log_of(const fs::path& run) {
  std::istringstream text(contents(run / "log.jsonl"));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::vector<double> losses_of(const fs::path& run) {
  std::vector<double> losses;
  for (const Json& line : log_of(run)) {
    if (line.contains("loss")) losses.push_back(line.at("loss"));
  }
  return losses;
}

std::map<std::string, std::vector<float>> weights_of(const fs::path& run, int step, const char* file = kFiles[0]) {
  const Parameters parameters(small_config().model);
  return import_weights(run / "checkpoints" / ("step_0000000" + std::to_string(step)) / file,
                        expected_tensors(parameters));
}

// Five images to train on, so that the third step reaches into the second epoch, and three held out: more than a batch.
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

  // The training that others are compared with: four steps in one go, checkpoints behind the second and the fourth.
  static const fs::path& reference() {
    static const fs::path run = [] {
      train(small_config(), options("reference"));
      return folder() / "reference";
    }();
    return run;
  }

  // What a training prints.
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

TEST_F(Training, GoesOnAsIfItHadNotStopped) {
  TrainingOptions o = options("resumed");
  o.checkpoint_every = 0;  // one where it stops, and one in the end
  o.stop_at = 2;
  EXPECT_TRUE(train(small_config(), o));
  EXPECT_EQ(contents(o.out / "checkpoints" / "latest"), "step_00000002\n");
  o.stop_at = 0;
  o.resume = true;
  EXPECT_TRUE(train(small_config(), o));
  expect_same_step(reference(), o.out, 2);
  expect_same_step(reference(), o.out, 4);
  EXPECT_EQ(losses_of(o.out), losses_of(reference()));
}

TEST_F(Training, AnotherSeedTrainsOtherwise) {
  TrainingConfig config = small_config();
  config.seed = 6;
  TrainingOptions o = options("seed");
  o.stop_at = 2;
  train(config, o);
  EXPECT_NE(weights_of(o.out, 2), weights_of(reference(), 2));
  EXPECT_NE(losses_of(o.out)[0], losses_of(reference())[0]);
}

// Held-out losses and samples are taken with the training's own weights, device and images, and change none of its
// bits.
TEST_F(Training, WatchingChangesNothing) {
  TrainingOptions o = options("watched");
  o.stop_at = 2;
  o.held_out_every = 1;
  o.sample_every = 1;
  train(small_config(), o);
  expect_same_step(reference(), o.out, 2);
  EXPECT_TRUE(fs::exists(o.out / "samples" / "step_00000001.png"));
  std::vector<double> held_out;
  for (const Json& line : log_of(o.out)) {
    if (line.contains("held_out_loss")) held_out.push_back(line.at("held_out_loss"));
  }
  ASSERT_EQ(held_out.size(), 3u);  // before the first step, and behind each
  EXPECT_NE(held_out[0], held_out[1]);
}

// Four steps, so that each half of the buffer on the device is filled twice.
TEST_F(Training, StreamedImagesAreTheSameImages) {
  TrainingOptions o = options("streamed");
  o.device_data_bytes = 0;
  const std::string text = printed([&] { train(small_config(), o); });
  EXPECT_TRUE(has(text, "streamed from the host"));
  expect_same_step(reference(), o.out, 2);
  expect_same_step(reference(), o.out, 4);
}

TEST_F(Training, AGraphChangesNoBit) {
  TrainingOptions o = options("launches");
  o.graph = false;
  o.stop_at = 2;
  train(small_config(), o);
  expect_same_step(reference(), o.out, 2);
}

// A batch of an image and the same image again.
TEST_F(Training, OneImageIsEnoughToTrainOn) {
  put_images(folder() / "one.ldata", kSide, 1, 0);
  TrainingConfig config = small_config();
  config.steps = 1;
  TrainingOptions o = options("one");
  o.data = folder() / "one.ldata";
  o.held_out_every = 1;  // of which there are none
  EXPECT_TRUE(train(config, o));
  EXPECT_EQ(losses_of(o.out).size(), 1u);
  EXPECT_TRUE(fs::exists(o.out / "checkpoints" / "step_00000001"));
}

TEST_F(Training, RefusesDataThatDoesNotFit) {
  TrainingOptions o = options("refused");
  o.data = folder() / "empty.ldata";
  put(o.data, "");
  EXPECT_TRUE(has(message_of<Failure>([&] { train(small_config(), o); }), "shorter than a header"));
  put_images(o.data, kSide, 0, 0);
  EXPECT_TRUE(has(message_of<Failure>([&] { train(small_config(), o); }), "0 images, of which 0 are held out"));
  put_images(o.data, 2 * kSide, 3, 1);
  EXPECT_TRUE(has(message_of<UsageError>([&] { train(small_config(), o); }), "prepare them with --size 8"));
  EXPECT_FALSE(fs::exists(o.out));
}

TEST_F(Training, AJumpOfTheLossEndsIt) {
  TrainingConfig config = small_config();
  config.learning_rate = 100;
  config.steps = 10;
  TrainingOptions o = options("jump");
  const std::string message = message_of<Failure>([&] { train(config, o); });
  EXPECT_TRUE(has(message, "the loss has jumped from"));
  EXPECT_TRUE(has(message, "go on from the last checkpoint in '" + o.out.string() + "'"));
  EXPECT_FALSE(fs::exists(o.out / "checkpoints" / "step_00000010"));
}

// The noise and time steps are the batch's too: only the update tells one step from the next, and with a learning rate
// that changes no weight, nothing does.
TEST_F(Training, AnOverfitBatchIsTheSameEveryStep) {
  TrainingConfig config = small_config();
  config.learning_rate = 1e-30;
  config.steps = 2;
  config.overfit_batch = true;
  train(config, options("overfit"));
  const std::vector<double> losses = losses_of(folder() / "overfit");
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0], losses[1]);

  config.learning_rate = 1e-3;
  train(config, options("overfit, learning"));
  const std::vector<double> learning = losses_of(folder() / "overfit, learning");
  EXPECT_EQ(learning[0], losses[0]);
  EXPECT_LT(learning[1], learning[0]);
  EXPECT_NE(losses_of(reference())[1], losses_of(reference())[0]);
}

class Resuming : public Training {
 protected:
  // A run of its own with the reference's checkpoint of step 2.
  static TrainingOptions interrupted(const std::string& name) {
    TrainingOptions o = options(name);
    fs::create_directories(o.out / "checkpoints");
    fs::copy(reference() / "checkpoints" / "step_00000002", o.out / "checkpoints" / "step_00000002",
             fs::copy_options::recursive);
    put(o.out / "checkpoints" / "latest", "step_00000002\n");
    o.resume = true;
    return o;
  }
  static fs::path file_of(const TrainingOptions& o, const char* file) {
    return o.out / "checkpoints" / "step_00000002" / file;
  }
};

TEST_F(Resuming, RefusesOtherData) {
  TrainingOptions o = interrupted("other data");
  o.data = folder() / "other.ldata";
  put_images(o.data, kSide, 8, 3, 1);
  EXPECT_TRUE(has(message_of<Failure>([&] { train(small_config(), o); }), "trained on other data than"));
}

TEST_F(Resuming, RefusesAnotherModel) {
  const TrainingOptions o = interrupted("other model");
  TrainingConfig config = small_config();
  config.model.res_blocks = 2;
  const std::string message = message_of<Failure>([&] { train(config, o); });
  EXPECT_TRUE(has(message, "of another model"));
  EXPECT_TRUE(has(message, "\"res_blocks\":1"));
}

TEST_F(Resuming, RefusesWhatIsDamagedOrNotThere) {
  const auto refusal = [](const TrainingOptions& o) { return message_of<Failure>([&] { train(small_config(), o); }); };
  TrainingOptions o = interrupted("damaged");
  const fs::path ema = file_of(o, "ema.safetensors");
  fs::resize_file(ema, fs::file_size(ema) - 4);
  EXPECT_TRUE(has(refusal(o), ema.string()));
  EXPECT_TRUE(has(refusal(o), "cut short"));
  put(ema, "no safetensors at all");
  EXPECT_TRUE(has(refusal(o), ema.string()));
  fs::remove(ema);
  EXPECT_TRUE(has(refusal(o), "no whole checkpoint"));
  o.initial_weights = file_of(o, "model.safetensors");
  EXPECT_TRUE(has(message_of<UsageError>([&] { train(small_config(), o); }), "--resume or --init-weights, not both"));
  o.initial_weights.clear();
  o.out = folder() / "nowhere";
  EXPECT_TRUE(has(refusal(o), "nowhere"));
  EXPECT_FALSE(fs::exists(o.out));
}

TEST_F(Resuming, OtherKernelsAreSaid) {
  TrainingOptions o = interrupted("other kernels");
  o.stop_at = 2;  // there already: nothing is trained
  const std::string text = printed([&] { train(small_config(), o); });
  EXPECT_FALSE(has(text, "other kernels"));
  EXPECT_TRUE(has(text, "nothing is left to do"));
  o.use = "add/residual=v01";
  EXPECT_TRUE(has(printed([&] { train(small_config(), o); }), "other kernels than the checkpoint's"));
}

TEST_F(Resuming, ATrainingIsNotBegunOverAnother) {
  TrainingOptions o = interrupted("begun");
  o.resume = false;
  EXPECT_TRUE(has(message_of<UsageError>([&] { train(small_config(), o); }), "holds a training already"));
}

TEST_F(Resuming, AFullDiskLeavesTheCheckpointBefore) {
  if (backend::kind() == backend::Kind::gpu) GTEST_SKIP() << "a process that has used CUDA cannot fork";
  const TrainingOptions o = interrupted("full disk");
  const std::size_t most = fs::file_size(file_of(o, "model.safetensors")) / 2;
  for (const bool kills : {false, true}) {
    const Ended ended = with_file_limit(most, kills, [&] { train(small_config(), o); });
    if (!kills) {
      EXPECT_EQ(ended.code, 1);
      EXPECT_TRUE(has(ended.err, "step_00000004"));
      EXPECT_TRUE(has(ended.err, "File too large"));
      EXPECT_EQ(ended.err.find('\n'), ended.err.npos) << ended.err;
    } else {
      EXPECT_EQ(ended.code, 128 + SIGXFSZ);
    }
    EXPECT_FALSE(fs::exists(o.out / "checkpoints" / "step_00000004"));
    EXPECT_EQ(find_checkpoint(o.out).filename(), "step_00000002");
  }
  // From there it goes on to where it would have come.
  EXPECT_TRUE(train(small_config(), o));
  expect_same_step(reference(), o.out, 4);
}

class Diverging : public Training {
 protected:
  // The reference's initialisation with one number in it that is not.
  static fs::path spoilt_weights() {
    const Parameters parameters(small_config().model);
    std::vector<float> flat = parameters.initial(1);
    flat[parameters["out.2.bias"].begin] = std::numeric_limits<float>::infinity();
    Checkpoint checkpoint;
    checkpoint.metadata = {{"step", "1"}};
    for (const Parameter& p : parameters.all()) {
      const std::vector<float> values = file_values(p, flat);
      checkpoint.tensors.push_back(
          {.name = p.name, .shape = p.shape, .weight = values, .ema = values, .m = values, .v = values});
    }
    return write_checkpoint(folder() / "spoilt", checkpoint) / kFiles[0];
  }
};

TEST_F(Diverging, LeavesUpdatesOutAndCountsThem) {
  TrainingOptions o = options("infinite");
  o.initial_weights = spoilt_weights();
  o.stop_at = 2;
  const std::string text = printed([&] { train(small_config(), o); });
  EXPECT_TRUE(has(text, "loss and gradient not finite"));
  EXPECT_TRUE(has(text, "updates left out: 2"));
  const auto start = import_weights(o.initial_weights, expected_tensors(Parameters(small_config().model)));
  EXPECT_EQ(weights_of(o.out, 2), start);
  EXPECT_EQ(weights_of(o.out, 2, kFiles[1]), start);
  EXPECT_EQ(read_metadata(o.out).at("skipped"), "2");
  EXPECT_EQ(log_of(o.out).back().at("skipped"), 2);
  EXPECT_TRUE(log_of(o.out).back().at("loss").is_null());
  // The count goes on behind an interruption.
  o.initial_weights.clear();
  o.resume = true;
  o.stop_at = 3;
  train(small_config(), o);
  EXPECT_EQ(read_metadata(o.out).at("skipped"), "3");
}

TEST_F(Diverging, EndsBehindManyUpdatesLeftOut) {
  TrainingConfig config = small_config();
  config.steps = 25;
  TrainingOptions o = options("only infinite");
  o.initial_weights = spoilt_weights();
  o.checkpoint_every = 0;
  EXPECT_TRUE(
      has(message_of<Failure>([&] { train(config, o); }), "the gradients of 20 steps in a row were not finite"));
  EXPECT_EQ(log_of(o.out).size(), 19u);
}

}  // namespace
}  // namespace ladder::train
