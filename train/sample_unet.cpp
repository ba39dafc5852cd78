// sample_unet: draws images from a checkpoint of train_unet; `./ladder sample` builds and runs it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "io/aside_file.h"
#include "io/npy.h"
#include "nn/models/unet2d.h"
#include "train/checkpoint.h"
#include "train/model_files.h"
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
  std::string dtype;
  std::string use;
  std::string graph = "on";
};

std::uint8_t pixel(float value) {
  return static_cast<std::uint8_t>(std::clamp((value + 1) * 127.5f + 0.5f, 0.0f, 255.0f));
}

// Schema ladder.sampling/1, of which tools/readme/train_budget.py makes a column of train/README.md.
void write_times(const Options& o, const TrainingConfig& config, Dtype dtype, int images,
                 const std::vector<double>& batch_seconds) {
  const nlohmann::json record = {{"schema", "ladder.sampling/1"},
                                 {"device", backend::device().name},
                                 {"driver", backend::device().driver},
                                 {"config", config},
                                 {"dtype", name(dtype)},
                                 {"graph", o.graph == "on"},
                                 {"sampler", o.sampler},
                                 {"steps", o.steps},
                                 {"images", images},
                                 {"batch_seconds", batch_seconds}};
  io::write_text(o.json, record.dump(1) + "\n");
}

int draw(const Options& o) {
  const auto folder = find_checkpoint(o.checkpoint);
  const TrainingConfig config = config_of(read_metadata(folder));
  const nn::Unet2d model(config.model);
  const nn::Parameters parameters(model.declare());
  const std::vector<float> weights =
      read_weights(folder / (o.ema ? "ema.safetensors" : "model.safetensors"), parameters);
  Dtype dtype = config.dtype;
  if (!o.dtype.empty()) {
    const auto parsed = parse_dtype(o.dtype);
    if (!parsed || *parsed == Dtype::f16)
      throw UsageError("--dtype is one of: bf16, tf32, fp32; not '" + o.dtype + "'");
    dtype = *parsed;
  }
  nn::State state(parameters, dtype);
  state.set_values(weights);
  Promotions promotions = Promotions::for_device(backend::device().slug);
  if (!o.use.empty()) promotions.use(o.use);
  const int images = std::min(o.count, o.batch);
  Sampler sampler({.dtype = dtype,
                   .images = images,
                   .kind = o.sampler == "ddim" ? SamplerKind::ddim : SamplerKind::ddpm,
                   .steps = o.steps,
                   .eta_percent = o.eta,
                   .large = o.fixed_large,
                   .clip = !o.no_clip,
                   .betas = config.betas,
                   .graph = o.graph == "on"},
                  model, parameters, state.weights(), promotions);
  const std::size_t each = config.model.image_elements();
  std::vector<float> drawn;
  std::vector<double> batch_seconds;
  for (int first = 0; first < o.count; first += images) {
    const auto began = std::chrono::steady_clock::now();
    const std::vector<float> batch = sampler.run(o.seed, first);
    batch_seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    drawn.insert(drawn.end(), batch.begin(), batch.begin() + std::min<std::size_t>(images, o.count - first) * each);
    fmt::print("{} of {} images, {:.2f} s for {} in {} steps\n", std::min(o.count, first + images), o.count,
               batch_seconds.back(), images, o.steps);
    std::fflush(stdout);
  }
  write_grid(o.out, drawn, config.model.image_size);
  fmt::print("wrote {}\n", o.out.string());
  if (!o.npy.empty()) {
    std::vector<std::uint8_t> bytes(drawn.size());
    std::ranges::transform(drawn, bytes.begin(), pixel);
    io::write_npy(o.npy, bytes, {o.count, config.model.image_size, config.model.image_size, nn::kImageChannels});
    fmt::print("wrote {}\n", o.npy.string());
  }
  if (!o.json.empty()) {
    write_times(o, config, dtype, images, batch_seconds);
    fmt::print("wrote {}\n", o.json.string());
  }
  return 0;
}

int run(int argc, char** argv) {
  Options o;
  CLI::App app("Draws images from a checkpoint.", "sample_unet");
  app.add_option("checkpoint", o.checkpoint, "a run's folder, or one of its checkpoints")->required();
  app.add_option("--steps", o.steps, "of the sampler")->capture_default_str();
  app.add_option("--sampler", o.sampler, "ddim or ddpm")->capture_default_str();
  app.add_option("--eta", o.eta, "ddim: per cent of ddpm's noise")->capture_default_str();
  app.add_flag("--fixed-large", o.fixed_large, "ddpm: beta for variance, as guided-diffusion; else the posterior's");
  app.add_flag("--no-clip", o.no_clip, "do not clamp the predicted image to [-1, 1]");
  app.add_option("--count", o.count, "images")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--batch", o.batch, "images at a time")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--seed", o.seed)->capture_default_str();
  app.add_flag("--ema,!--no-ema", o.ema, "weights: their moving average (default), or as they are");
  app.add_option("--dtype", o.dtype, "bf16, tf32 or fp32 (default: the training's)");
  app.add_option("--use", o.use, "versions in place of promoted ones: conv3x3/fprop=v07");
  app.add_option("--graph", o.graph, "on or off")->capture_default_str();
  app.add_option("--out", o.out, "a PNG with all images in a grid")->capture_default_str();
  app.add_option("--npy", o.npy,
                 "besides: [count, h, w, 3] uint8; `./ladder sample --npz` makes guided-diffusion's file of it");
  app.add_option("--json", o.json, "besides: how long each batch took, a record for train/README.md");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    app.exit(help);
    return 0;
  } catch (const CLI::ParseError& error) {
    throw UsageError(one_line(error.what()) + "; --help lists the options");
  }
  if (o.sampler != "ddim" && o.sampler != "ddpm")
    throw UsageError("--sampler is ddim or ddpm, not '" + o.sampler + "'");
  if (o.graph != "on" && o.graph != "off") throw UsageError("--graph is on or off, not '" + o.graph + "'");
  if (o.steps < 1 || o.steps > diffusion::kTimesteps) {
    throw UsageError(fmt::format("--steps is from 1 to {}, not {}", diffusion::kTimesteps, o.steps));
  }
  if (o.eta < 0 || o.eta > 100) throw UsageError(fmt::format("--eta is from 0 to 100 per cent, not {}", o.eta));
  if (const char* reason = backend::unavailable()) throw Failure(reason);
  return draw(o);
}

}  // namespace
}  // namespace ladder::train

int main(int argc, char** argv) {
  try {
    return ladder::train::run(argc, argv);
  } catch (const ladder::UsageError& error) {
    fmt::print(stderr, "sample_unet: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "sample_unet: {}\n", error.what());
    return 1;
  }
}
