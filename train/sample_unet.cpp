// sample_unet: draws images from a checkpoint of train_unet; `./ladder sample` builds and runs it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/ceil_div.h"
#include "core/error.h"
#include "core/program.h"
#include "io/aside_file.h"
#include "io/digest.h"
#include "io/flags.h"
#include "io/npy.h"
#include "nn/models/unet2d.h"
#include "runtime/chosen_versions.h"
#include "train/budget.h"
#include "train/checkpoint.h"
#include "train/model_files.h"
#include "train/ranks.h"
#include "train/sampler.h"

namespace ladder::train {
namespace {

struct Options {
  std::filesystem::path checkpoint;
  std::filesystem::path out = "samples.png";
  std::filesystem::path npy;
  std::filesystem::path json;
  int steps = 50;
  std::string sampler = "ddim";
  int eta = 0;
  bool fixed_large = false;
  bool no_clip = false;
  int count = 64;
  int batch = 64;
  std::int64_t seed = 0;
  bool ema = true;
  std::optional<Dtype> dtype;
  std::string use;
  bool graph = true;
  std::optional<int> graph_steps;
  bool explain = false;
};

constexpr std::size_t kTimedBatches = 11;  // minimum for --json; the first batch warms up

std::uint8_t pixel(float value) {
  return static_cast<std::uint8_t>(std::clamp((value + 1) * 127.5f + 0.5f, 0.0f, 255.0f));
}

std::string digest_of(const std::vector<float>& values) {
  io::Digest digest;
  digest.add(values.data(), values.size() * sizeof(float));
  return digest.hex();
}

// Writes a record of schema ladder.sampling/1, from which tools/readme/train_budget.py makes a column of
// train/README.md.
void write_times(const Options& o, const TrainingConfig& config, Dtype dtype, int images, int graph_steps,
                 const std::vector<double>& batch_seconds) {
  const nlohmann::json record = {{"schema", "ladder.sampling/1"},
                                 {"device", backend::device().name},
                                 {"driver", backend::device().driver},
                                 {"config", config},
                                 {"dtype", name(dtype)},
                                 {"graph", o.graph},
                                 {"graph_steps", graph_steps},
                                 {"sampler", o.sampler},
                                 {"steps", o.steps},
                                 {"images", images},
                                 {"batch_seconds", batch_seconds}};
  io::write_text(o.json, record.dump(1) + "\n");
}

// Prints the last finished step of a batch every ten seconds: on the emulator a batch can take minutes.
class Steps {
 public:
  Steps(int first, const Options& o) : first_(first), options_(o), said_(Clock::now()) {}

  void operator()(int step) {
    if (Clock::now() - said_ < std::chrono::seconds(10)) return;
    said_ = Clock::now();
    fmt::print(stderr, "from image {} on: step {} of {}\n", first_ + 1, step, options_.steps);
  }

 private:
  using Clock = std::chrono::steady_clock;
  int first_;
  const Options& options_;
  Clock::time_point said_;
};

int draw(const Options& o, Ranks& ranks) {
  const auto folder = find_checkpoint(o.checkpoint);
  const TrainingConfig config = config_of(read_metadata(folder));
  const nn::Unet2d model(config.model);
  const nn::Parameters parameters(model.declare());
  const std::vector<float> weights =
      read_weights(folder / (o.ema ? "ema.safetensors" : "model.safetensors"), parameters);
  const Dtype dtype = o.dtype.value_or(config.dtype);
  nn::State state(parameters, dtype);
  state.set_values(weights);
  const Promotions promotions = chosen_versions(dtype, o.use);
  const int images = std::min(ceil_div(o.count, ranks.size()), o.batch);
  const int most_steps =
      o.graph_steps.value_or(backend::kind() == backend::Kind::gpu ? SamplerOptions{}.graph_steps : 1);
  const int graph_steps = o.explain ? 1 : std::min(o.steps, most_steps);
  Sampler sampler({.dtype = dtype,
                   .images = images,
                   .kind = o.sampler == "ddim" ? SamplerKind::ddim : SamplerKind::ddpm,
                   .steps = o.steps,
                   .eta_percent = o.eta,
                   .large = o.fixed_large,
                   .clip = !o.no_clip,
                   .betas = config.betas,
                   .graph = o.graph,
                   .graph_steps = graph_steps},
                  model, parameters, state.weights(), promotions);
  if (o.explain) {
    explain(sampler.program());
    return 0;
  }
  if (ranks.size() > 1) ranks.compare(digest_of(weights), promotions.str());
  const std::size_t image_elements = config.model.image_elements();
  std::vector<float> drawn;
  std::vector<double> batch_seconds;
  const auto timed = [&](int first) {
    const auto began = std::chrono::steady_clock::now();
    std::vector<float> batch = sampler.run(o.seed, first, Steps(first, o));
    batch_seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    return batch;
  };
  // Rank r draws batch r of each round. An image's noise follows from its number, so images are the same for any ranks.
  const std::int64_t images_a_round = std::int64_t{images} * ranks.size();
  for (std::int64_t first = 0; first < o.count; first += images_a_round) {
    const std::int64_t first_of_rank = first + ranks.rank() * images;
    std::vector<float> batch;
    if (first_of_rank < o.count) {
      batch = timed(static_cast<int>(first_of_rank));
      batch.resize(std::min<std::size_t>(images, o.count - first_of_rank) * image_elements);
    }
    const std::vector<float> of_ranks = ranks.gather(std::move(batch));
    drawn.insert(drawn.end(), of_ranks.begin(), of_ranks.end());
    ranks.print("{} of {} images, {:.3g} s for {} in {} steps\n",
                std::min<std::int64_t>(o.count, first + images_a_round), o.count, batch_seconds.back(), images,
                o.steps);
  }
  if (!ranks.leads()) return 0;
  write_grid(o.out, drawn, config.model.image_size);
  fmt::print("wrote {}\n", o.out.string());
  if (!o.npy.empty()) {
    std::vector<std::uint8_t> bytes(drawn.size());
    std::ranges::transform(drawn, bytes.begin(), pixel);
    io::write_npy(o.npy, bytes, {o.count, config.model.image_size, config.model.image_size, nn::kImageChannels});
    fmt::print("wrote {}\n", o.npy.string());
  }
  if (!o.json.empty()) {
    while (batch_seconds.size() < kTimedBatches) timed(0);
    write_times(o, config, dtype, images, graph_steps, batch_seconds);
    fmt::print("wrote {}\n", o.json.string());
  }
  return 0;
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app("Draws images from a checkpoint.", "sample_unet");
  app.add_option("checkpoint", o.checkpoint, "a run's folder, or one of its checkpoints")->required();
  app.option_defaults()->group("how images are drawn");
  const auto add = [&](const char* flag, auto& value, const char* limits, const char* help) {
    app.add_option(flag, value, help)->capture_default_str()->check(io::limits(limits));
  };
  add("--steps", o.steps, "[1, 1000]", "of the sampler");
  app.add_option("--sampler", o.sampler, "ddim or ddpm")->capture_default_str()->check(io::words({"ddim", "ddpm"}));
  add("--eta", o.eta, "[0, 100]", "ddim: per cent of ddpm's noise");
  app.add_flag("--fixed-large", o.fixed_large, "ddpm: beta for variance, as guided-diffusion; else the posterior's");
  app.add_flag("--no-clip", o.no_clip, "do not clamp the predicted image to [-1, 1]");
  add("--count", o.count, "[1, 2147483647]", "images");
  add("--batch", o.batch, "[1, 2147483647]", "images at a time");
  add("--seed", o.seed, "[0, 9223372036854775807]",
      "of the noise: an image's follows from this and its number, whatever --batch is");
  app.add_flag("--ema,!--no-ema", o.ema, "weights: their moving average, the default; or as they are");
  io::add_choice<std::optional<Dtype>>(app, "--dtype", o.dtype,
                                       {{"bf16", Dtype::bf16}, {"tf32", Dtype::tf32}, {"fp32", Dtype::f32}},
                                       "bf16, tf32 or fp32 (default: the training's)");
  app.add_option("--use", o.use, "versions in place of promoted ones: conv3x3/fprop=v07")->type_name("VERSIONS");
  io::add_choice<bool>(app, "--graph", o.graph, {{"on", true}, {"off", false}},
                       "on: denoising steps in CUDA graphs; off: the same bits, launch by launch");
  app.add_option("--graph-steps", o.graph_steps,
                 "in one graph, after which it may say what is done (default: 10; on the emulator 1)")
      ->check(io::limits("[1, 1000]"));
  app.add_flag("--explain", o.explain, "print which version every operation of a step runs, and why, and leave");
  app.option_defaults()->group("what is written");
  app.add_option("--out", o.out, "a PNG with all images in a grid")->capture_default_str()->type_name("FILE.png");
  app.add_option("--npy", o.npy,
                 "besides: [count, h, w, 3] uint8; `./ladder sample --npz` makes guided-diffusion's file of it")
      ->type_name("FILE.npy");
  app.add_option("--json", o.json,
                 "besides: how long each batch took, a record for train/README.md; eleven at least, drawn again")
      ->type_name("FILE.json");
  if (!io::parse(app, {argv + 1, argv + argc})) return 0;
  if (const char* reason = backend::unavailable()) throw Failure(reason);
  const std::string all_flags = fmt::format("{}", fmt::join(argv + 1, argv + argc, " "));
  return run_ranks("sample_unet", std::getenv, {}, all_flags, [&](Ranks& ranks) {
    if (ranks.size() > 1 && (o.explain || !o.json.empty())) {
      throw UsageError("--explain and --json are for one process: without --gpus");
    }
    return draw(o, ranks);
  });
}

}  // namespace
}  // namespace ladder::train

int main(int argc, char** argv) {
  return ladder::program_status("sample_unet", [&] { return ladder::train::run(argc, argv); });
}
