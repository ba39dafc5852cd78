// Resuming a training: damaged and foreign checkpoints, full disks, two trainings at once, skipped updates.
#include <csignal>
#include <limits>
#include <thread>

#include <fmt/format.h>

#include "tests/train/run.h"

namespace ladder::train::test {
namespace {

class Resuming : public Training {
 protected:
  // Returns the options of a new run that holds the reference's checkpoint of step 2.
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

// Flip one bit in the newest checkpoint's moments: the training resumes from the previous checkpoint and ends the same.
TEST_F(Resuming, PassesOverADamagedCheckpoint) {
  TrainingOptions o = interrupted("newest damaged");
  const fs::path newest = o.out / "checkpoints" / "step_00000004";
  fs::copy(reference() / "checkpoints" / "step_00000004", newest, fs::copy_options::recursive);
  put(o.out / "checkpoints" / "latest", "step_00000004\n");
  std::string moments = contents(newest / "optimizer.safetensors");
  moments[moments.size() / 2] ^= 1;
  put(newest / "optimizer.safetensors", moments);
  const std::string text = printed([&] { train(small_config(), o); });
  EXPECT_TRUE(has(text, (newest / "optimizer.safetensors").string() + "' is damaged"));
  EXPECT_TRUE(has(text, "going on from step 2 instead"));
  expect_same_step(reference(), o.out, 4);
}

TEST_F(Resuming, ARunKilledInItsFirstCheckpointBeginsAgain) {
  TrainingOptions o = options("killed");
  fs::create_directories(o.out / "checkpoints" / "step_00000002.partial");
  put(o.out / "log.jsonl", "{\"step\":1,\"loss\":7}\n{\"st");
  train(small_config(), o);
  expect_same_step(reference(), o.out, 4);
  EXPECT_EQ(losses_of(o.out), losses_of(reference()));
}

// Steps logged after the checkpoint are logged again, and a half-written line is dropped.
TEST_F(Resuming, TheLogGoesOnFromTheCheckpoint) {
  TrainingOptions o = interrupted("log");
  const std::string log = contents(reference() / "log.jsonl");
  put(o.out / "log.jsonl", log.substr(0, log.size() - 10));
  train(small_config(), o);
  EXPECT_EQ(losses_of(o.out), losses_of(reference()));
}

TEST_F(Resuming, KeepsTheOptionsThatAreNotGivenAnew) {
  TrainingOptions o = options("kept options");
  o.use = "add/residual=v01";
  o.graph = false;
  o.keep = 7;
  o.stop_at = 1;
  train(small_config(), o);
  TrainingOptions again{.out = o.out, .log_every = 3};
  recall_options(again, [](std::string_view flag) { return flag == "--log-every"; });
  EXPECT_EQ(again.data, o.data);
  EXPECT_EQ(again.use, o.use);
  EXPECT_EQ(again.graph, false);
  EXPECT_EQ(again.keep, 7);
  EXPECT_EQ(again.checkpoint_every, 2);
  EXPECT_EQ(again.log_every, 3);
  EXPECT_EQ(again.stop_at, 0) << "of one start alone";
  const auto recall = [&] { recall_options(again, [](std::string_view) { return false; }); };
  for (const char* wrong : {"\"many\"", "4294967303", "7.5", "true", "-1"}) {
    put(o.out / "options.json", std::string("{\"--keep\": ") + wrong + "}");
    const std::string message = message_of<Failure>(recall);
    EXPECT_TRUE(has(message, "options.json' is damaged: its --keep " + std::string(wrong))) << message;
  }
  EXPECT_EQ(again.keep, 7);
}

TEST_F(Resuming, TwoTrainingsInOneFolderAreRefused) {
  const TrainingOptions o = interrupted("two at once");
  const RunLock other(o.out);
  EXPECT_TRUE(has(message_of<UsageError>([&] { train(small_config(), o); }),
                  "process " + std::to_string(getpid()) + " is training in '" + o.out.string() + "'"));
}

// Returns a thread that signals this process once a step is logged: by then the training has installed its handlers.
std::thread sender_to(const TrainingOptions& o, int signal) {
  return std::thread([log = o.out / "log.jsonl", signal] {
    while (!fs::exists(log) || fs::file_size(log) == 0) std::this_thread::yield();
    kill(getpid(), signal);
  });
}

TEST_F(Resuming, SignalsEndItWithACheckpoint) {
  TrainingConfig config = small_config();
  config.steps = 1000;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    TrainingOptions o = options("signal " + std::to_string(signal));
    o.checkpoint_every = 0;
    const auto before = std::signal(signal, SIG_DFL);  // in case the tests were started with the signal ignored
    std::thread sender = sender_to(o, signal);
    EXPECT_FALSE(train(config, o)) << signal;
    sender.join();
    std::signal(signal, before);
    EXPECT_TRUE(has_checkpoint(o.out)) << signal;
  }
  // nohup starts a program with SIGHUP ignored.
  const auto before = std::signal(SIGHUP, SIG_IGN);
  const TrainingOptions o = options("ignored");
  std::thread sender = sender_to(o, SIGHUP);
  EXPECT_TRUE(train(small_config(), o));
  sender.join();
  std::signal(SIGHUP, before);
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

// A longer training has a higher rate at the same step if the rate depends on the length.
TEST_F(Resuming, ARiseOfTheLearningRateIsSaid) {
  TrainingOptions o = options("longer");
  TrainingConfig config = small_config();
  config.decay = Decay::cosine;
  config.warm_up = 2;
  o.stop_at = 1;
  train(config, o);
  o.resume = true;
  o.stop_at = 3;
  EXPECT_FALSE(has(printed([&] { train(config, o); }), "the learning rate")) << "of a warm-up";
  o.stop_at = 4;
  TrainingConfig shorter = config;
  shorter.learning_rate /= 2;
  EXPECT_FALSE(has(printed([&] { train(shorter, o); }), "the learning rate"));
  config.steps = 8;
  config.learning_rate = 0.1;
  o.stop_at = 5;
  const std::string text = printed([&] { train(config, o); });
  EXPECT_TRUE(has(text, fmt::format("note: the learning rate rises from {:.3g} to {:.3g}\n", learning_rate(shorter, 4),
                                    learning_rate(config, 5))));
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
  // Resuming from there ends in the same state.
  EXPECT_TRUE(train(small_config(), o));
  expect_same_step(reference(), o.out, 4);
}

class Diverging : public Training {
 protected:
  // Returns the reference's initialisation with one value so large that the gradients overflow.
  static fs::path spoilt_weights(float value = 1e38f) {
    const nn::Parameters parameters = small_parameters();
    std::vector<float> flat = parameters.initial(1);
    flat[parameters["out.2.bias"].begin] = value;
    Checkpoint checkpoint;
    checkpoint.metadata = {{"step", "1"}};
    for (const nn::Parameter& p : parameters.all()) {
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
  const auto start = import_weights(o.initial_weights, expected_tensors(small_parameters()));
  EXPECT_EQ(weights_of(o.out, 2), start);
  EXPECT_EQ(weights_of(o.out, 2, kFiles[1]), start);
  EXPECT_EQ(read_metadata(o.out).at("skipped"), "2");
  EXPECT_EQ(log_of(o.out).back().at("skipped"), 2);
  EXPECT_TRUE(log_of(o.out).back().at("loss").is_null());
  // The count of skipped updates continues after an interruption.
  o.initial_weights.clear();
  o.resume = true;
  o.stop_at = 3;
  train(small_config(), o);
  EXPECT_EQ(read_metadata(o.out).at("skipped"), "3");
}

TEST_F(Diverging, WeightsThatAreNotFiniteAreRefused) {
  TrainingOptions o = options("not finite");
  o.initial_weights = spoilt_weights(std::numeric_limits<float>::quiet_NaN());
  const std::string message = message_of<Failure>([&] { train(small_config(), o); });
  EXPECT_TRUE(has(message, "tensor 'out.2.bias' has a weight that is not finite"));
}

// The step's checkpoint stays.
TEST_F(Diverging, APictureThatIsNotFiniteEndsIt) {
  TrainingOptions o = options("no picture");
  o.initial_weights = spoilt_weights(3e38f);
  o.sample_every = 2;
  const std::string message = message_of<Failure>([&] { train(small_config(), o); });
  EXPECT_TRUE(has(
      message, "samples of step 2: image 0 has a number that is not finite: the network's prediction is not finite"));
  EXPECT_FALSE(fs::exists(o.out / "samples"));
  EXPECT_EQ(find_checkpoint(o.out).filename(), "step_00000002");
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
}  // namespace ladder::train::test
