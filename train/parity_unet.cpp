// parity_unet: the network on weights and inputs from files, for comparison with PyTorch
// (reference/pytorch/unet_parity.py and unet_train.py write and read the same files).
//
//     parity_unet --config tiny --weights W.safetensors --inputs I.safetensors --out O.safetensors
//     parity_unet --weights W.safetensors --batches B.safetensors --losses L.json
//
// I has x0 [n, 3, h, w] and noise [n, 3, h, w] fp32 and t [n]; O gets pred [n, 3, h, w], loss [1] and grad.<parameter>.
// B has the same with a dimension [steps] in front; L gets the losses of as many AdamW steps.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "core/program.h"
#include "io/safetensors.h"
#include "nn/models/unet2d.h"
#include "runtime/chosen_versions.h"
#include "train/model_files.h"
#include "train/step.h"
#include "train/training_config.h"

namespace ladder::train {
namespace {

struct Options {
  std::string config = "unet64", dtype = "fp32", use;
  std::filesystem::path weights, inputs, out, batches, losses;
  double learning_rate = 1e-4;
  double clip = 0;
};

// Converts [count, c, h, w] to [count, h, w, c]; to_nchw() does the reverse.
std::vector<float> to_nhwc(const float* nchw, std::size_t count, std::size_t side) {
  const std::size_t pixels = side * side;
  std::vector<float> nhwc(count * pixels * nn::kImageChannels);
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t c = 0; c < nn::kImageChannels; ++c) {
      for (std::size_t p = 0; p < pixels; ++p) {
        nhwc[(n * pixels + p) * nn::kImageChannels + c] = nchw[(n * nn::kImageChannels + c) * pixels + p];
      }
    }
  }
  return nhwc;
}

std::vector<float> to_nchw(const std::vector<float>& nhwc, std::size_t side) {
  const std::size_t pixels = side * side;
  const std::size_t count = nhwc.size() / pixels / nn::kImageChannels;
  std::vector<float> nchw(nhwc.size());
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t c = 0; c < nn::kImageChannels; ++c) {
      for (std::size_t p = 0; p < pixels; ++p) {
        nchw[(n * nn::kImageChannels + c) * pixels + p] = nhwc[(n * pixels + p) * nn::kImageChannels + c];
      }
    }
  }
  return nchw;
}

// A batch of images with their time steps.
struct Batch {
  std::vector<float> noised;  // [n, h, w, c]
  std::vector<float> noise;   // [n, h, w, c]
  std::vector<std::int32_t> t;
};

class Batches {
 public:
  Batches(const std::filesystem::path& path, int side, bool several)
      : x0_(of(path, "x0")), noise_(of(path, "noise")), t_(of(path, "t")), side_(side) {
    const io::SafetensorsFile file(path);
    const io::Shape& shape = file.find("t")->shape;
    steps_ = several ? shape.at(0) : 1;
    images_ = shape.back();
    const std::size_t expected = steps_ * images_ * nn::kImageChannels * side * side;
    if (x0_.size() != expected || noise_.size() != expected || t_.size() != steps_ * images_) {
      throw Failure(fmt::format("'{}': x0 and noise must be {} images of 3 x {} x {}", path.string(), steps_ * images_,
                                side, side));
    }
    if (file.find("x0")->dtype == Dtype::u8) {
      for (float& value : x0_) value = value / 127.5f - 1.0f;
    }
  }

  std::size_t steps() const { return steps_; }
  int images() const { return static_cast<int>(images_); }

  Batch batch_of_step(std::size_t step) const {
    const auto schedule = diffusion::make_schedule(diffusion::Betas::linear);
    const std::size_t image_elements = nn::kImageChannels * side_ * side_;
    const std::size_t first = step * images_;
    Batch batch{.noised = to_nhwc(x0_.data() + first * image_elements, images_, side_),
                .noise = to_nhwc(noise_.data() + first * image_elements, images_, side_),
                .t = {}};
    for (std::size_t i = 0; i < images_; ++i) {
      const auto t = static_cast<std::int32_t>(t_[first + i]);
      const double bar = schedule.alpha_bar(t);
      batch.t.push_back(t);
      for (std::size_t j = i * image_elements; j < (i + 1) * image_elements; ++j) {
        batch.noised[j] = static_cast<float>(std::sqrt(bar) * batch.noised[j] + std::sqrt(1 - bar) * batch.noise[j]);
      }
    }
    return batch;
  }

 private:
  // Reads a tensor as fp32, including integers, which fp32 represents exactly up to 2^24.
  static std::vector<float> of(const std::filesystem::path& path, const char* name) {
    const io::SafetensorsFile file(path);
    const io::StoredTensor* const tensor = file.find(name);
    if (tensor == nullptr || !is_integer(tensor->dtype)) return file.floats(name);
    std::vector<float> values(tensor->elements());
    decode(tensor->dtype, file.bytes(name).data(), values.size(), values.data());
    return values;
  }

  std::vector<float> x0_, noise_, t_;
  std::size_t side_, steps_ = 0, images_ = 0;
};

int run(int argc, char** argv) {
  Options o;
  CLI::App app("The network on weights and inputs from files, for comparison with PyTorch.", "parity_unet");
  app.add_option("--config", o.config, "unet64 or tiny")->capture_default_str();
  app.add_option("--dtype", o.dtype, "fp32, tf32 or bf16")->capture_default_str();
  app.add_option("--weights", o.weights, "safetensors")->required();
  app.add_option("--inputs", o.inputs, "safetensors: x0, t, noise");
  app.add_option("--out", o.out, "safetensors: pred, loss and gradients");
  app.add_option("--batches", o.batches, "safetensors: x0, t, noise of several steps");
  app.add_option("--losses", o.losses, "JSON: the loss of each step");
  app.add_option("--lr", o.learning_rate)->capture_default_str();
  app.add_option("--clip", o.clip, "the gradient's largest norm; 0: not clipped")->capture_default_str();
  app.add_option("--use", o.use, "versions in place of promoted ones");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    app.exit(help);
    return 0;
  } catch (const CLI::ParseError& error) {
    throw UsageError(one_line(error.what()) + "; --help lists the options");
  }
  if (o.inputs.empty() == o.batches.empty() || o.inputs.empty() != o.out.empty() ||
      o.batches.empty() != o.losses.empty()) {
    throw UsageError("either --inputs with --out, or --batches with --losses");
  }
  const auto dtype = parse_dtype(o.dtype);
  if (!dtype || *dtype == Dtype::f16) throw UsageError("--dtype is one of: fp32, tf32, bf16; not '" + o.dtype + "'");
  if (const char* reason = backend::unavailable()) throw Failure(reason);

  const bool trains = !o.batches.empty();
  TrainingConfig config{.name = o.config, .model = nn::unet2d_config(o.config), .dtype = *dtype};
  config.learning_rate = o.learning_rate;
  config.clip = o.clip;
  const Batches batches(trains ? o.batches : o.inputs, config.model.image_size, trains);
  config.batch = batches.images();
  config.check();

  const nn::Unet2d model(config.model);
  const nn::Parameters parameters(model.declare());
  nn::State state(parameters, *dtype);
  const std::vector<float> weights = read_weights(o.weights, parameters);
  state.set_values(weights);
  state.set(state.average, weights);
  const Promotions promotions = chosen_versions(*dtype, o.use);
  const OwnedRegion no_pixels("pixels", config.model.image_elements());
  EpsilonObjective objective(epsilon_options(config, 1), model, no_pixels);
  Step step({.dtype = *dtype, .clip = o.clip > 0, .graph = false}, objective, parameters, state, promotions);

  nlohmann::json losses = nlohmann::json::array();
  for (std::size_t number = 0; number < batches.steps(); ++number) {
    const Batch batch = batches.batch_of_step(number);
    EpsilonInputs inputs{.index = std::vector<std::int32_t>(batch.t.size()), .t = batch.t};
    objective.set_batch(batch.noised, batch.noise);
    const StepResults results =
        step.run_on_batch({.batch = inputs.bytes(), .hyper = hyper(config, static_cast<std::int64_t>(number) + 1)});
    losses.push_back(results.loss);
    if (trains) continue;
    std::vector<io::StoredTensor> tensors = {
        {.name = "pred", .shape = {config.batch, nn::kImageChannels, config.model.image_size, config.model.image_size}},
        {.name = "loss", .shape = {1}}};
    std::vector<std::vector<float>> values = {
        to_nchw(objective.prediction(), static_cast<std::size_t>(config.model.image_size)), {results.loss}};
    const std::vector<float> gradients = step.gradients();
    for (const nn::Parameter& p : parameters.all()) {
      tensors.push_back({.name = "grad." + p.name, .shape = p.shape});
      values.push_back(file_values(p, gradients));
    }
    std::vector<io::FloatTensor> floats;
    for (std::size_t i = 0; i < tensors.size(); ++i) floats.push_back({tensors[i].name, tensors[i].shape, values[i]});
    io::write_floats(o.out, floats, {{"precision", o.dtype}, {"device", backend::device().name}});
    fmt::print("{}: loss {:.9g}; {} gradients in {}\n", o.dtype, results.loss, parameters.all().size(), o.out.string());
  }
  if (trains) {
    io::write_text(o.losses, nlohmann::json({{"dtype", o.dtype}, {"losses", losses}}).dump() + "\n");
    fmt::print("{} steps, last loss {:.6f}: {}\n", batches.steps(), losses.back().get<double>(), o.losses.string());
  }
  return 0;
}

}  // namespace
}  // namespace ladder::train

int main(int argc, char** argv) {
  return ladder::program_status("parity_unet", [&] { return ladder::train::run(argc, argv); });
}
