// train_unet: trains guided-diffusion's U-Net; `./ladder train` builds and runs it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "train/budget.h"
#include "train/checkpoint.h"
#include "train/model_files.h"
#include "train/training.h"

namespace ladder::train {
namespace {

constexpr int kInterrupted = 130;

struct Words {
  std::string config = "unet64", dtype = "bf16", decay = "constant", schedule = "linear", graph = "on", ema = "ramp";
  std::string channel_mult, attention_resolutions, budget;
  bool explain = false;
};

void add_model(CLI::App& app, TrainingConfig& c, Words& words) {
  app.add_option(
         "--config", words.config,
         "a model to begin with: unet64 (20,494,211 parameters); tiny, which learns two images by heart in 30 steps")
      ->capture_default_str();
  app.add_option("--image-size", c.model.image_size, "pixels of a side");
  app.add_option("--channels", c.model.channels, "of the first level");
  app.add_option("--channel-mult", words.channel_mult, "a level's channels as a multiple of those: 1,2,3,4");
  app.add_option("--res-blocks", c.model.res_blocks, "of a level on the way down");
  app.add_option("--attention-resolutions", words.attention_resolutions, "sides at which blocks attend: 16,8");
  app.add_option("--head-size", c.model.head_size, "channels of an attention head: 32 or 64");
}

void add_training(CLI::App& app, TrainingConfig& c, Words& words) {
  app.add_option("--dtype", words.dtype, "bf16 (fp32 master weights and weight gradients), tf32 or fp32")
      ->capture_default_str();
  app.add_option("--steps", c.steps, "of the whole training")->capture_default_str();
  app.add_option("--batch", c.batch, "images of a step")->capture_default_str();
  app.add_option("--micro-batches", c.micro_batches, "parts that a batch is cut into, to save memory")
      ->capture_default_str();
  app.add_option("--lr", c.learning_rate, "learning rate")->capture_default_str();
  app.add_option("--warm-up", c.warm_up, "steps over which the learning rate grows")->capture_default_str();
  app.add_option("--decay", words.decay, "of the learning rate: constant, linear, cosine")->capture_default_str();
  app.add_option("--beta1", c.beta1)->capture_default_str();
  app.add_option("--beta2", c.beta2)->capture_default_str();
  app.add_option("--eps", c.eps)->capture_default_str();
  app.add_option("--weight-decay", c.weight_decay, "decoupled (AdamW)")->capture_default_str();
  app.add_option("--clip", c.clip, "the gradient's largest norm; 0: not clipped")->capture_default_str();
  app.add_option("--ema-rate", c.ema_rate, "of the weights' moving average")->capture_default_str();
  app.add_option("--ema", words.ema, "ramp: a half-life of at most 5 % of the images seen; constant")
      ->capture_default_str();
  app.add_option("--schedule", words.schedule, "of the noise: linear, cosine")->capture_default_str();
  app.add_flag("--flip", c.flip, "mirror every other image, at random");
  app.add_flag("--overfit-batch,!--no-overfit-batch", c.overfit_batch,
               "the first batch, its time steps and its noise again and again; or a new batch each step");
  app.add_option("--seed", c.seed, "of weights, order, time steps and noise")->capture_default_str();
}

void add_running(CLI::App& app, TrainingOptions& o, Words& words) {
  app.add_option("--data", o.data, "a file that `./ladder prepare` made");
  app.add_option("--out", o.out, "folder of the run")->required();
  app.add_flag("--resume", o.resume,
               "go on from the newest checkpoint of --out, with the options that the run was started with");
  app.add_option("--init-weights", o.initial_weights, "safetensors to begin with, named as in guided-diffusion");
  app.add_option("--graph", words.graph, "on: the step is one CUDA graph; off: the same bits, launch by launch")
      ->capture_default_str();
  app.add_option("--use", o.use, "versions in place of promoted ones: conv3x3/fprop=v07,gemm/dgrad=v03");
  app.add_option("--log-every", o.log_every, "steps; likewise the others, 0: never")->capture_default_str();
  app.add_option("--held-out-every", o.held_out_every, "the loss on images held out")->capture_default_str();
  app.add_option("--sample-every", o.sample_every, "a grid of images from the average")->capture_default_str();
  app.add_option("--checkpoint-every", o.checkpoint_every)->capture_default_str();
  app.add_option("--keep", o.keep, "checkpoints")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--stop-at", o.stop_at, "stop behind this step with a checkpoint, as if interrupted");
  app.add_option("--device-data-bytes", o.device_data_bytes, "larger data sets are streamed from the host")
      ->capture_default_str();
  app.add_flag("--explain", words.explain, "print which version every operation runs, and why, and leave");
  app.add_option("--budget", words.budget, "time every operation of a step, write this JSON file, and leave");
}

template <class T>
T one_of(const char* what, const std::string& word, std::initializer_list<std::pair<const char*, T>> choices) {
  std::string all;
  for (const auto& [text, value] : choices) {
    if (word == text) return value;
    all += all.empty() ? text : fmt::format(", {}", text);
  }
  throw UsageError(fmt::format("{} is one of: {}; not '{}'", what, all, word));
}

// `tiny` is for machines without a GPU, where a step takes seconds: two images learned by heart show that everything
// works. What the command line names stays.
void begin_tiny(const CLI::App& app, TrainingConfig& c) {
  const auto given = [&](const char* option) { return app.count(option) > 0; };
  if (!given("--steps")) c.steps = 30;
  if (!given("--batch")) c.batch = 2;
  if (!given("--lr")) c.learning_rate = 1e-3;
  if (!given("--overfit-batch")) c.overfit_batch = true;
}

void run_tiny(const CLI::App& app, TrainingOptions& o) {
  const auto given = [&](const char* option) { return app.count(option) > 0; };
  if (!given("--log-every")) o.log_every = 1;
  if (!given("--held-out-every")) o.held_out_every = 0;
  if (!given("--checkpoint-every")) o.checkpoint_every = 0;
}

// The numbers of --config lie below those that the command line names.
void begin_with(const Words& words, const CLI::App& app, TrainingConfig& c) {
  const nn::Unet2dConfig named = nn::unet2d_config(words.config);
  const auto given = [&](const char* option) { return app.count(option) > 0; };
  c.name = words.config;
  if (!given("--image-size")) c.model.image_size = named.image_size;
  if (!given("--channels")) c.model.channels = named.channels;
  if (!given("--res-blocks")) c.model.res_blocks = named.res_blocks;
  if (!given("--head-size")) c.model.head_size = named.head_size;
  c.model.channel_mult =
      given("--channel-mult") ? nn::parse_list(words.channel_mult, "--channel-mult") : named.channel_mult;
  c.model.attention_resolutions = given("--attention-resolutions")
                                      ? nn::parse_list(words.attention_resolutions, "--attention-resolutions")
                                      : named.attention_resolutions;
  c.dtype = one_of<Dtype>("--dtype", words.dtype, {{"bf16", Dtype::bf16}, {"tf32", Dtype::tf32}, {"fp32", Dtype::f32}});
  c.decay = one_of<Decay>("--decay", words.decay,
                          {{"constant", Decay::constant}, {"linear", Decay::linear}, {"cosine", Decay::cosine}});
  c.betas = one_of<diffusion::Betas>("--schedule", words.schedule,
                                     {{"linear", diffusion::Betas::linear}, {"cosine", diffusion::Betas::cosine}});
  c.ema_ramp = one_of<bool>("--ema", words.ema, {{"ramp", true}, {"constant", false}});
  if (c.name == "tiny") begin_tiny(app, c);
}

// A training that goes on has the configuration that it began with, but for those numbers that may change on the way,
// where the command line names them. What it names of the others must agree.
void go_on_with(const TrainingOptions& options, const CLI::App& app, TrainingConfig& c) {
  const TrainingConfig now = c;
  const TrainingConfig before = config_of(read_newest_metadata(options.out));
  const nlohmann::json json_before = before;
  const nlohmann::json json_now = now;
  static constexpr std::pair<const char*, const char*> kFixed[] = {{"--config", "name"},
                                                                   {"--image-size", "model"},
                                                                   {"--channels", "model"},
                                                                   {"--channel-mult", "model"},
                                                                   {"--res-blocks", "model"},
                                                                   {"--head-size", "model"},
                                                                   {"--attention-resolutions", "model"},
                                                                   {"--dtype", "dtype"},
                                                                   {"--batch", "batch"},
                                                                   {"--micro-batches", "micro_batches"},
                                                                   {"--beta1", "beta1"},
                                                                   {"--beta2", "beta2"},
                                                                   {"--eps", "eps"},
                                                                   {"--flip", "flip"},
                                                                   {"--overfit-batch", "overfit_batch"},
                                                                   {"--seed", "seed"},
                                                                   {"--schedule", "schedule"}};
  for (const auto& [option, key] : kFixed) {
    if (app.count(option) > 0 && json_before.at(key) != json_now.at(key)) {
      throw UsageError(fmt::format("{}: the training in '{}' has {} {}, which cannot change on the way", option,
                                   options.out.string(), key, json_before.at(key).dump()));
    }
  }
  c = before;
  const auto take = [&](const char* option, auto member) {
    if (app.count(option) > 0) c.*member = now.*member;
  };
  take("--steps", &TrainingConfig::steps);
  take("--lr", &TrainingConfig::learning_rate);
  take("--warm-up", &TrainingConfig::warm_up);
  take("--decay", &TrainingConfig::decay);
  take("--weight-decay", &TrainingConfig::weight_decay);
  take("--clip", &TrainingConfig::clip);
  take("--ema-rate", &TrainingConfig::ema_rate);
  take("--ema", &TrainingConfig::ema_ramp);
}

int run(int argc, char** argv) {
  CLI::App app("Trains guided-diffusion's U-Net to predict noise.", "train_unet");
  TrainingConfig config;
  TrainingOptions options;
  Words words;
  add_model(app, config, words);
  add_training(app, config, words);
  add_running(app, options, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    app.exit(help);
    return 0;
  } catch (const CLI::ParseError& error) {
    throw UsageError(one_line(error.what()) + "; --help lists the options");
  }
  begin_with(words, app, config);
  const auto given = [&](const char* flag) { return app.count(flag) > 0; };
  options.graph = one_of<bool>("--graph", words.graph, {{"on", true}, {"off", false}});
  config.check();
  if (const char* reason = backend::unavailable()) throw Failure(reason);
  if (options.resume) go_on_with(options, app, config);
  if (config.name == "tiny") run_tiny(app, options);
  if (options.resume) recall_options(options, given);
  if (options.data.empty()) throw UsageError("--data is required: a file that `./ladder prepare` made");
  if (words.explain) return explain(config, options);
  if (!words.budget.empty()) return budget(config, options, words.budget);
  return train(config, options) ? 0 : kInterrupted;
}

}  // namespace
}  // namespace ladder::train

int main(int argc, char** argv) {
  try {
    return ladder::train::run(argc, argv);
  } catch (const ladder::UsageError& error) {
    fmt::print(stderr, "train_unet: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_unet: {}\n", error.what());
    return 1;
  }
}
