// train_unet: trains guided-diffusion's U-Net; `./ladder train` builds and runs it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "core/program.h"
#include "io/flags.h"
#include "train/budget.h"
#include "train/checkpoint.h"
#include "train/comparison.h"
#include "train/model_files.h"
#include "train/training.h"

namespace ladder::train {
namespace {

constexpr int kInterrupted = 130;

struct Words {
  std::string config = "unet64", channel_mult, attention_resolutions, budget, compare, json;
  int rounds = 0;
  bool explain = false, resume_or_begin = false;
  RanksOptions ranks;
};

// Returns whether the command line has a flag.
using Given = std::function<bool(const char* flag)>;

constexpr const char* kList = "[1-9][0-9]*(,[1-9][0-9]*)*";

void add_model(CLI::App& app, TrainingConfig& c, Words& words) {
  app.option_defaults()->group("the model");
  app.add_option(
         "--config", words.config,
         "what to begin with: unet64 (20,494,211 parameters); tiny, for machines without a GPU, which learns two "
         "images by heart in 30 steps")
      ->capture_default_str()
      ->check(io::words({"unet64", "tiny"}));
  app.add_option("--image-size", c.model.image_size, "pixels of a side")->check(io::limits("[1, )"));
  app.add_option("--channels", c.model.channels, "of the first level")->check(io::limits("[1, )"));
  app.add_option("--channel-mult", words.channel_mult, "a level's channels as a multiple of those: 1,2,3,4")
      ->type_name("LIST")
      ->check(io::pattern(kList));
  app.add_option("--res-blocks", c.model.res_blocks, "of a level on the way down")->check(io::limits("[1, )"));
  app.add_option("--attention-resolutions", words.attention_resolutions, "sides at which blocks attend: 16,8")
      ->type_name("LIST")
      ->check(io::pattern(kList));
  app.add_option("--head-size", c.model.head_size, "channels of an attention head: 32 or 64")
      ->check(io::words({"32", "64"}));
}

void add_training(CLI::App& app, TrainingConfig& c) {
  app.option_defaults()->group("the training");
  const auto add = [&](const char* flag, auto& value, const char* limits, const char* help) {
    app.add_option(flag, value, help)->capture_default_str()->check(io::limits(limits));
  };
  io::add_choice<Dtype>(app, "--dtype", c.dtype, {{"bf16", Dtype::bf16}, {"tf32", Dtype::tf32}, {"fp32", Dtype::f32}},
                        "bf16 (fp32 master weights and weight gradients), tf32 or fp32");
  add("--steps", c.steps, "[1, )", "of the whole training; tiny: 30");
  add("--batch", c.batch, "[1, )", "images of a step; tiny: 2");
  add("--micro-batches", c.micro_batches, "[1, )", "parts that a batch is cut into, to save memory");
  add("--lr", c.learning_rate, "(0, )", "learning rate; tiny: 0.001");
  add("--warm-up", c.warm_up, "[0, )", "steps over which the learning rate grows");
  io::add_choice<Decay>(app, "--decay", c.decay,
                        {{"constant", Decay::constant}, {"linear", Decay::linear}, {"cosine", Decay::cosine}},
                        "of the learning rate");
  add("--beta1", c.beta1, "[0, 1)", "AdamW's");
  add("--beta2", c.beta2, "[0, 1)", "AdamW's");
  add("--eps", c.eps, "(0, )", "AdamW's");
  add("--weight-decay", c.weight_decay, "[0, )", "decoupled, AdamW's");
  add("--clip", c.clip, "[0, )", "the gradient's largest norm; 0: not clipped");
  add("--ema-rate", c.ema_rate, "[0, 1)", "of the weights' moving average");
  io::add_choice<bool>(app, "--ema", c.ema_ramp, {{"ramp", true}, {"constant", false}},
                       "ramp: a half-life of at most 5 % of the images seen; constant");
  io::add_choice<diffusion::Betas>(app, "--schedule", c.betas,
                                   {{"linear", diffusion::Betas::linear}, {"cosine", diffusion::Betas::cosine}},
                                   "of the noise");
  app.add_flag("--flip", c.flip, "mirror every other image, at random");
  app.add_flag("--overfit-batch,!--no-overfit-batch", c.overfit_batch,
               "the first batch, its time steps and its noise again and again, as tiny does; or a new batch each step");
  add("--seed", c.seed, "[0, 9223372036854775807]", "of weights, order, time steps and noise");
}

void add_running(CLI::App& app, TrainingOptions& o, Words& words) {
  app.option_defaults()->group("how it runs");
  const auto add = [&](const char* flag, auto& value, const char* limits, const char* help) {
    return app.add_option(flag, value, help)->check(io::limits(limits));
  };
  app.add_option("--data", o.data, "a file that `./ladder prepare` made")->type_name("FILE.ldata");
  app.add_option("--out", o.out, "folder of the run")->type_name("DIR")->required();
  CLI::Option* resume = app.add_flag(
      "--resume", o.resume,
      "go on from the newest checkpoint of --out, with the options that the run was started with where they are "
      "not given anew");
  app.add_flag("--resume-or-begin", words.resume_or_begin,
               "go on where --out has a checkpoint, else begin: for launchers that start a training again")
      ->excludes(resume);
  app.add_option("--init-weights", o.initial_weights, "safetensors to begin with, named as in guided-diffusion")
      ->type_name("FILE");
  io::add_choice<bool>(app, "--graph", o.graph, {{"on", true}, {"off", false}},
                       "on: the step is one CUDA graph; off: the same bits, launch by launch");
  io::add_choice<bool>(app, "--branches", o.branches, {{"on", true}, {"off", false}},
                       "on: small operations run beside the others; off: the same bits, one after the other");
  io::add_choice<bool>(app, "--batches", o.batches, {{"on", true}, {"off", false}},
                       "on: weights' gradients of layers of one shape in one launch; off: each in its own");
  app.add_option("--use", o.use, "versions in place of promoted ones: conv3x3/fprop=v07,gemm/dgrad=v03")
      ->type_name("VERSIONS");
  add("--log-every", o.log_every, "[0, )", "steps; likewise the others, 0: never; tiny: 1")->capture_default_str();
  add("--held-out-every", o.held_out_every, "[0, )", "the loss on images held out; tiny: 0")->capture_default_str();
  add("--sample-every", o.sample_every, "[0, )", "a grid of images from the average")->capture_default_str();
  add("--checkpoint-every", o.checkpoint_every, "[0, )", "and at the end; tiny: 0")->capture_default_str();
  add("--keep", o.keep, "[1, )", "checkpoints")->capture_default_str();
  add("--stop-at", o.stop_at, "[0, )", "stop after this step with a checkpoint, as if interrupted");
  add("--device-data-bytes", o.device_data_bytes, "[0, )", "larger data sets are streamed from the host")
      ->capture_default_str();
  CLI::Option* explain =
      app.add_flag("--explain", words.explain, "print which version every operation runs, and why, and leave");
  CLI::Option* budget =
      app.add_option("--budget", words.budget, "time every operation of a step, write this JSON file, and leave")
          ->type_name("FILE");
  CLI::Option* compare =
      app.add_option(
             "--compare", words.compare,
             "time steps that differ in this, replayed in turn, and leave: conv3x3/fprop=v09,v14 (promoted: as "
             "it is without --compare), overlap=on,off, early=on,off, branches=on,off, batches=on,off; of several "
             "GPUs ranks=alone,all, sums=beside,after, reduce=fp32,bf16, buckets=1,8; or several of them")
          ->type_name("SIDES");
  compare->excludes(explain)->excludes(budget)->excludes(resume);
  add("--rounds", words.rounds, "[1, 100000]", "of --compare, each with two replays a side: 100; emulator: 1")
      ->needs(compare);
  app.add_option("--json", words.json, "what --compare found, as a record")->type_name("FILE.json")->needs(compare);
}

void add_ranks(CLI::App& app, TrainingOptions& o, RanksOptions& ranks) {
  app.option_defaults()->group("several GPUs: one process each, started by --gpus, torchrun, srun or mpirun");
  io::add_choice<bool>(app, "--overlap", o.overlap, {{"on", true}, {"off", false}},
                       "on: gradients are summed over ranks beside the backward pass; off: the same bits, after it");
  app.add_option("--buckets", o.buckets, "ranges of the matrices' gradients, each summed when it is complete")
      ->capture_default_str()
      ->check(io::limits("[1, 64]"));
  app.add_option("--reduce", o.reduce,
                 "fp32, or bf16: sum gradients as the layers write them, half the bytes and one more rounding")
      ->capture_default_str()
      ->check(io::words({"fp32", "bf16"}));
  io::add_choice<bool>(app, "--collectives", ranks.collectives_on_host, {{"nccl", false}, {"host", true}},
                       "nccl; host: over TCP, slow, for tests and for ranks that share a GPU (emulator: always)");
  app.add_option("--rank-timeout", ranks.rank_timeout_s,
                 "seconds without a step, checkpoints and samples apart, after which the ranks end")
      ->capture_default_str()
      ->check(io::limits("(0, )"));
  app.add_option("--start-timeout", ranks.start_timeout_s, "seconds to wait until all ranks are there")
      ->capture_default_str()
      ->check(io::limits("(0, )"));
}

// Sets the defaults of `tiny`, for machines without a GPU, where a step takes seconds: overfitting two images shows
// that everything works. Flags of the command line keep their values.
void begin_tiny(const Given& given, TrainingConfig& c) {
  if (!given("--steps")) c.steps = 30;
  if (!given("--batch")) c.batch = 2;
  if (!given("--lr")) c.learning_rate = 1e-3;
  if (!given("--overfit-batch")) c.overfit_batch = true;
}

void run_tiny(const Given& given, TrainingOptions& o) {
  if (!given("--log-every")) o.log_every = 1;
  if (!given("--held-out-every")) o.held_out_every = 0;
  if (!given("--checkpoint-every")) o.checkpoint_every = 0;
}

// Applies the values of --config, except where the command line has a flag of its own.
void begin_with(const Words& words, const Given& given, TrainingConfig& c) {
  const nn::Unet2dConfig named = nn::unet2d_config(words.config);
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
  if (c.name == "tiny") begin_tiny(given, c);
}

// Sets the configuration of a resumed training to the one it began with. Values that may change on resume are taken
// from the command line where given; other values given there must agree.
void go_on_with(const TrainingOptions& options, const Given& given, TrainingConfig& c) {
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
    if (given(option) && json_before.at(key) != json_now.at(key)) {
      throw UsageError(fmt::format("{}: the training in '{}' has {} {}, which cannot change on the way", option,
                                   options.out.string(), key, json_before.at(key).dump()));
    }
  }
  c = before;
  const auto take = [&](const char* option, auto member) {
    if (given(option)) c.*member = now.*member;
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

// Completes configuration and options: from the folder of a resumed training, and with the defaults of `tiny`.
void complete(const Words& words, const Given& given, TrainingConfig& config, TrainingOptions& options) {
  if (words.resume_or_begin) options.resume = has_checkpoint(options.out);
  if (options.resume) go_on_with(options, given, config);
  if (config.name == "tiny") run_tiny(given, options);
  if (options.resume) recall_options(options, given);
  if (options.data.empty()) throw UsageError("--data is required: a file that `./ladder prepare` made");
}

// Sets configuration and options to rank 0's, which alone reads the run's folder.
void share(Ranks& ranks, TrainingConfig& config, TrainingOptions& options) {
  if (ranks.size() == 1) return;
  nlohmann::json first;
  if (ranks.leads()) first = {{"config", config}, {"options", kept_options(options)}, {"resume", options.resume}};
  first = nlohmann::json::parse(ranks.from_first(first.dump()));
  config = first.at("config").get<TrainingConfig>();
  take_options(options, first.at("options"), [](const char*) { return false; });
  options.resume = first.at("resume");
}

// Reports on a step in place of a training.
int look_at(Words& words, const Given& given, const TrainingConfig& config, const TrainingOptions& options,
            Ranks& ranks) {
  if (ranks.size() > 1 && words.compare.empty()) {
    throw UsageError("--explain and --budget are for one process: without --gpus");
  }
  if (words.explain) return explain(config, options);
  if (!words.budget.empty()) return budget(config, options, words.budget);
  if (!options.graph) throw UsageError("--compare replays graphs: leave out --graph off");
  if (words.json.empty()) throw UsageError("--compare needs --json");
  if (!given("--rounds")) words.rounds = backend::kind() == backend::Kind::gpu ? 100 : 1;
  return compare(config, options, words.compare, words.rounds, words.json, ranks);
}

int run(int argc, char** argv) {
  CLI::App app("Trains guided-diffusion's U-Net to predict noise.", "train_unet");
  TrainingConfig config;
  TrainingOptions options;
  Words words;
  add_model(app, config, words);
  add_training(app, config);
  add_running(app, options, words);
  add_ranks(app, options, words.ranks);
  if (!io::parse(app, {argv + 1, argv + argc})) return 0;
  const Given given = [&](const char* flag) { return app.count(flag) > 0; };
  const std::string all_flags = fmt::format("{}", fmt::join(argv + 1, argv + argc, " "));
  return run_ranks("train_unet", std::getenv, words.ranks, all_flags, [&](Ranks& ranks) {
    begin_with(words, given, config);
    config.check();
    if (const char* reason = backend::unavailable()) throw Failure(reason);
    if (ranks.leads()) complete(words, given, config, options);
    share(ranks, config, options);
    if (words.explain || !words.budget.empty() || !words.compare.empty()) {
      return look_at(words, given, config, options, ranks);
    }
    return train(config, options, ranks) ? 0 : kInterrupted;
  });
}

}  // namespace
}  // namespace ladder::train

int main(int argc, char** argv) {
  return ladder::program_status("train_unet", [&] { return ladder::train::run(argc, argv); });
}
