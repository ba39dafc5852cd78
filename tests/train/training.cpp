// A training from beginning to end: interrupted, streamed, watched, refused, jumping.
#include "tests/train/run.h"
#include "train/sampler.h"

namespace ladder::train::test {
namespace {

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
  ASSERT_EQ(held_out.size(), 3u);  // before the first step, and after each
  EXPECT_NE(held_out[0], held_out[1]);
}

// A picture is what the sampler draws with the average that the checkpoint of the same step has, by the training's schedule.
TEST_F(Training, PicturesAreDrawnFromTheAverage) {
  TrainingOptions o = options("pictures");
  o.stop_at = 2;
  o.sample_every = 1;
  o.checkpoint_every = 1;
  TrainingConfig config = small_config();
  config.betas = diffusion::Betas::cosine;
  config.learning_rate = 0.02;  // so that weights and averages differ in a picture of 256 levels
  train(config, o);
  const nn::Unet2d model(config.model);
  const nn::Parameters parameters(model.declare());
  const Promotions promotions = Promotions::for_device(backend::device().slug);
  nn::State state(parameters, config.dtype);
  Sampler sampler(
      {.dtype = config.dtype, .images = backend::kind() == backend::Kind::gpu ? 64 : 4, .betas = config.betas}, model,
      parameters, state.weights(), promotions);
  const auto drawn = [&](const char* file) {
    state.set_values(read_weights(o.out / "checkpoints" / "step_00000002" / file, parameters));
    write_grid(o.out / "drawn.png", sampler.run(static_cast<std::int64_t>(config.seed)), config.model.image_size);
    return contents(o.out / "drawn.png");
  };
  const std::string picture = contents(o.out / "samples" / "step_00000002.png");
  EXPECT_EQ(picture, drawn("ema.safetensors"));
  EXPECT_NE(picture, drawn("model.safetensors"));
  EXPECT_NE(picture, contents(o.out / "samples" / "step_00000001.png"));
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
  // The header counts two held out instead of three, so that one of them would be trained on; or a pixel differs.
  for (const int at : {32, 128 + 5}) {
    std::string text = contents(data());
    text[at] ^= 1;
    put(o.data, text);
    EXPECT_TRUE(has(message_of<Failure>([&] { train(small_config(), o); }), "is corrupt")) << at;
  }
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
// The weights are trained: a network that begins with a last layer of zeros has a loss that no image changes.
TEST_F(Training, AnOverfitBatchIsTheSameEveryStep) {
  const auto trained_options = [](const std::string& name) {
    TrainingOptions o = options(name);
    o.initial_weights = reference() / "checkpoints" / "step_00000004" / kFiles[0];
    return o;
  };
  TrainingConfig config = small_config();
  config.learning_rate = 1e-30;
  config.steps = 2;
  config.overfit_batch = true;
  train(config, trained_options("overfit"));
  const std::vector<double> losses = losses_of(folder() / "overfit");
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0], losses[1]);

  config.learning_rate = 1e-3;
  train(config, trained_options("overfit, learning"));
  const std::vector<double> learning = losses_of(folder() / "overfit, learning");
  EXPECT_EQ(learning[0], losses[0]);
  EXPECT_LT(learning[1], learning[0]);
  EXPECT_NE(losses_of(reference())[1], losses_of(reference())[0]);
}

}  // namespace
}  // namespace ladder::train::test
