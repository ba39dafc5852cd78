#include "train/training.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "io/png.h"
#include "nn/models/unet2d.h"
#include "runtime/chosen_versions.h"
#include "train/dataset.h"
#include "train/divergence.h"
#include "train/held_out.h"
#include "train/image_source.h"
#include "train/model_files.h"
#include "train/peak.h"
#include "train/sampler.h"
#include "train/step.h"

namespace ladder::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

volatile std::sig_atomic_t interrupted = 0;

void on_signal(int) {
  if (interrupted != 0) _exit(130);  // a second signal ends the process at once
  interrupted = 1;
}

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

// Signal handlers that stop the training after the current step on SIGINT (Ctrl-C), SIGTERM and SIGHUP, while the
// object exists. A signal that the process was started to ignore, such as SIGHUP under nohup, stays ignored.
class Signals {
 public:
  Signals() {
    interrupted = 0;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      before_[i] = std::signal(kSignals[i], on_signal);
      if (before_[i] == SIG_IGN) std::signal(kSignals[i], SIG_IGN);
    }
  }
  ~Signals() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) std::signal(kSignals[i], before_[i]);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  std::array<void (*)(int), kSignals.size()> before_{};
};

// Figures of the steps since the last line of the log.
struct Interval {
  std::int64_t steps = 0;
  double loss = 0;
  double norm = 0;
  double quartile_loss[4] = {};
  std::int64_t quartile_images[4] = {};

  // `t`: the time steps of the step's images.
  void add(const StepResults& r, const std::vector<std::int32_t>& t) {
    ++steps;
    loss += r.loss;
    norm += r.norm;
    for (std::size_t i = 0; i < r.losses.size(); ++i) {
      const int quartile = t[i] * 4 / diffusion::kTimesteps;
      quartile_loss[quartile] += r.losses[i];
      ++quartile_images[quartile];
    }
  }
};

std::string duration(double seconds) {
  const std::int64_t s = std::llround(seconds);
  if (s >= 3600) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} s", s);
}

class Training {
 public:
  Training(TrainingConfig config, const TrainingOptions& options)
      : config_(std::move(config)),
        options_(options),
        data_(options.data),
        model_(config_.model),
        parameters_(model_.declare()),
        state_(parameters_, config_.dtype),
        promotions_(chosen_versions(config_.dtype, options_.use)),
        order_(config_.seed, data_.num_training(), config_.flip),
        divergence_(advice()) {
    if (data_.image_size() != config_.model.image_size) {
      throw UsageError(
          fmt::format("'{}' has images of {} pixels a side, the model takes {}: prepare them with --size {}",
                      options_.data.string(), data_.image_size(), config_.model.image_size, config_.model.image_size));
    }
    data_.check_digest();
    source_ = std::make_unique<ImageSource>(data_, config_.batch, options_.device_data_bytes);
    begin_state();
    const EpsilonOptions of_batch = epsilon_options(config_, source_->images());
    objective_.emplace(of_batch, model_, source_->pixels());
    step_ = std::make_unique<Step>(StepOptions{.dtype = config_.dtype,
                                               .clip = config_.clip > 0,
                                               .graph = options_.graph,
                                               .branches = options_.branches,
                                               .batches = options_.batches},
                                   *objective_, parameters_, state_, promotions_);
    if (!source_->held_out().empty()) {
      held_out_ = std::make_unique<HeldOut>(of_batch, source_->held_out(), model_,
                                            nn::Binding{.parameters = &parameters_,
                                                        .weights = state_.weights(),
                                                        .dtype = config_.dtype,
                                                        .promotions = &promotions_},
                                            source_->pixels(), promotions_);
    }
  }

  bool run() {
    save_options(options_);
    log_ = std::make_unique<Log>(options_.out / "log.jsonl", first_);
    introduce();
    const Signals signals;
    const std::int64_t last = options_.stop_at > 0 ? std::min(options_.stop_at, config_.steps) : config_.steps;
    if (first_ >= last) {
      fmt::print("step {}/{}  nothing is left to do: the checkpoint is of this step\n", first_, config_.steps);
    }
    interval_began_ = Clock::now();
    if (first_ == 0) look_at_held_out(0);
    for (std::int64_t number = first_ + 1; number <= last && interrupted == 0; ++number) {
      submit(number);
      const bool logs = due(number, options_.log_every) || number == last;
      const bool pauses = due(number, options_.held_out_every) || due(number, options_.sample_every) ||
                          due(number, options_.checkpoint_every) || number == last;
      if (logs || pauses) {
        while (const auto results = step_->collect()) take(*results);
      }
      done_ = number;
      if (logs) report(last);
      if (!pauses) continue;
      const auto paused = Clock::now();
      if (due(number, options_.held_out_every) || number == last) look_at_held_out(number);
      if (due(number, options_.checkpoint_every) || number == last) save(number);
      if (due(number, options_.sample_every))
        draw(number);  // last, because it may fail: the checkpoint is written by now
      interval_began_ += Clock::now() - paused;
    }
    while (const auto results = step_->collect()) take(*results);
    if (interrupted != 0 && done_ < last) {
      save(done_);
      fmt::print("interrupted after step {}: go on with --resume --out {}\n", done_, options_.out.string());
      return false;
    }
    return true;
  }

 private:
  static bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

  std::string advice() const {
    return fmt::format("go on from the last checkpoint in '{}' with a lower --lr", options_.out.string());
  }

  void begin_state() {
    if (options_.resume) {
      if (!options_.initial_weights.empty()) {
        throw UsageError("a training that goes on has its own weights: --resume or --init-weights, not both");
      }
      find_checkpoint(options_.out);  // throws where there is no checkpoint, before RunLock creates a folder
      lock_.emplace(options_.out);
      const Resumed resumed = resume(options_.out, config_, parameters_, state_);
      first_ = done_ = taken_ = resumed.step;
      divergence_ = Divergence(advice(), resumed.skipped);
      for (const std::string& damaged : resumed.damaged) fmt::print("note: {}\n", damaged);
      if (!resumed.damaged.empty()) fmt::print("note: going on from step {} instead\n", first_);
      if (resumed.data_digest != data_.digest()) {
        throw Failure(fmt::format("the checkpoint was trained on other data than '{}': digest {} and {}",
                                  options_.data.string(), resumed.data_digest.substr(0, 12),
                                  data_.digest().substr(0, 12)));
      }
      if (const double before = learning_rate(resumed.config, first_), now = learning_rate(config_, first_ + 1);
          now > before && now > learning_rate(resumed.config, first_ + 1)) {
        fmt::print("note: the learning rate rises from {:.3g} to {:.3g}\n", before, now);
      }
      if (resumed.promotions != promotions_.str()) {
        fmt::print("note: other kernels than the checkpoint's: from here on bits will differ\n");
      } else if (resumed.device != backend::device().name) {
        fmt::print("note: the checkpoint is from {}, this is {}: bits may differ\n", resumed.device,
                   backend::device().name);
      }
      return;
    }
    lock_.emplace(options_.out);
    if (has_checkpoint(options_.out)) {
      throw UsageError(fmt::format("'{}' holds a training already: go on with --resume, or give another --out",
                                   options_.out.string()));
    }
    const std::vector<float> start = options_.initial_weights.empty()
                                         ? parameters_.initial(config_.seed)
                                         : read_weights(options_.initial_weights, parameters_);
    state_.set_values(start);
    state_.set(state_.average, start);
  }

  void introduce() const {
    const auto& device = backend::device();
    fmt::print("model: {}, {} parameters, {} images of {} pixels a side a step{}, {}\n", config_.name,
               parameters_.count(), config_.batch, config_.model.image_size,
               config_.micro_batches > 1 ? fmt::format(" in {} micro-batches", config_.micro_batches) : "",
               ladder::name(config_.dtype));
    fmt::print("data: {} images to train on, {} held out, {}\n", data_.num_training(), data_.num_held_out(),
               source_->streams() ? "streamed from the host" : "on the device");
    std::size_t operations = 0, fallbacks = 0;
    for (const Program* program : step_->programs()) {
      for (std::size_t i = 0; i < program->tape().operations().size(); ++i) {
        ++operations;
        if (program->choice(i).reason != "recorded") ++fallbacks;
      }
    }
    fmt::print("device: {}; {} operations a step{}; {:.0f} MiB\n", device.name, operations,
               options_.graph ? fmt::format(" in a graph of {} nodes", step_->num_nodes()) : ", no graph",
               static_cast<double>(step_->bytes() + objective_->bytes() + state_.bytes() + source_->pixels().bytes) /
                   (1 << 20));
    if (!promotions_.note().empty()) fmt::print("kernels: {}\n", promotions_.note());
    if (fallbacks > 0)
      fmt::print("kernels: {} of the operations without a record of their own: --explain\n", fallbacks);
    std::fflush(stdout);
  }

  std::vector<std::int32_t> batch_of(std::int64_t number) {
    std::vector<std::int32_t> batch(config_.batch);
    for (int i = 0; i < config_.batch; ++i) {
      const std::int64_t position = config_.overfit_batch ? i : (number - 1) * config_.batch + i;
      const auto image = static_cast<std::int32_t>(order_.image(position));
      batch[i] = order_.flipped(position) ? -1 - image : image;
    }
    return batch;
  }

  // Returns the inputs of step `number` except its images. With overfit_batch, every step has the time steps and noise
  // of step 1.
  EpsilonInputs inputs_of(std::int64_t number) const {
    return epsilon_inputs(config_, config_.overfit_batch ? 1 : number);
  }

  void submit(std::int64_t number) {
    EpsilonInputs batch = inputs_of(number);
    batch.index = source_->load(batch_of(number), step_->stream());
    const auto results = step_->submit({.batch = batch.bytes(), .hyper = hyper(config_, number)});
    source_->release(step_->stream());
    if (results) take(*results);
  }

  void take(const StepResults& results) {
    ++taken_;
    if (divergence_.look_at(results, taken_)) interval_.add(results, inputs_of(taken_).t);
  }

  void report(std::int64_t last) {
    const double seconds = std::chrono::duration<double>(Clock::now() - interval_began_).count();
    interval_began_ = Clock::now();
    const std::int64_t steps = done_ - reported_ > 0 && reported_ >= first_ ? done_ - reported_ : done_ - first_;
    reported_ = done_;
    const double seconds_per_step = seconds / static_cast<double>(steps);
    const double tflops = step_->flops() / seconds_per_step * 1e-12;
    const double peak = peak_tflops(config_.dtype);
    const auto count = static_cast<double>(interval_.steps);
    const bool any = interval_.steps > 0;  // false: every update was skipped, so there is no mean loss
    Json line = {{"step", done_},
                 {"images", done_ * config_.batch},
                 {"loss", any ? Json(interval_.loss / count) : Json()},
                 {"gradient_norm", any ? Json(interval_.norm / count) : Json()},
                 {"learning_rate", learning_rate(config_, done_)},
                 {"ema_rate", ema_rate(config_, done_)},
                 {"skipped", divergence_.skipped()},
                 {"ms_a_step", 1e3 * seconds_per_step}};
    for (int q = 0; q < 4; ++q) {
      const std::int64_t images = interval_.quartile_images[q];
      line["loss_by_quartile_of_t"].push_back(
          images > 0 ? Json(interval_.quartile_loss[q] / static_cast<double>(images)) : Json());
    }
    log_->add(line);
    const bool is_gpu = backend::kind() == backend::Kind::gpu;
    fmt::print("step {}/{}  {}  {}{}  {} left{}\n", done_, config_.steps,
               any ? fmt::format("loss {:.5f}  gradient {:.3f}", interval_.loss / count, interval_.norm / count)
                   : "loss and gradient not finite",
               is_gpu ? fmt::format("{:.2f} ms a step  {:.0f} images/s", 1e3 * seconds_per_step,
                                    config_.batch / seconds_per_step)
                      : fmt::format("{:.1f} s a step on the emulator", seconds_per_step),
               is_gpu ? fmt::format("  {:.0f} TFLOP/s ({:.0f} % of {:.0f})", tflops, 100 * tflops / peak, peak) : "",
               duration(seconds_per_step * static_cast<double>(last - done_)),
               divergence_.skipped() > 0 ? fmt::format("  updates left out: {}", divergence_.skipped()) : "");
    std::fflush(stdout);
    interval_ = {};
  }

  void look_at_held_out(std::int64_t number) {
    if (!held_out_ || options_.held_out_every == 0) return;
    const double loss = held_out_->loss();
    log_->add({{"step", number}, {"held_out_loss", loss}});
    fmt::print("step {}/{}  held-out loss {:.5f}\n", number, config_.steps, loss);
    std::fflush(stdout);
  }

  // Draws samples with the moving average of the weights. Weight copies, sampler and noise are separate from the
  // training's.
  void draw(std::int64_t number) {
    if (!sampler_) {
      if (state_.copies) average_copies_ = std::make_unique<OwnedRegion>("average's copies", state_.copies->bytes);
      const Region* const copies = average_copies_ ? average_copies_.get() : &state_.average;
      constexpr int kImages = 64;
      sampler_ = std::make_unique<Sampler>(SamplerOptions{.dtype = config_.dtype,
                                                          .images = backend::kind() == backend::Kind::gpu ? kImages : 4,
                                                          .betas = config_.betas,
                                                          .graph = options_.graph},
                                           model_, parameters_,
                                           nn::WeightRegions{.values = &state_.average, .copies = copies}, promotions_);
    }
    if (average_copies_) nn::copy_rounded(state_.get(state_.average), state_.stored, *average_copies_);
    const std::vector<float> images = drawn(number);
    const fs::path folder = options_.out / "samples";
    fs::create_directories(folder);
    const fs::path file = folder / fmt::format("step_{:08}.png", number);
    write_grid(file, images, config_.model.image_size);
    fmt::print("step {}/{}  samples: {}\n", number, config_.steps, file.string());
    std::fflush(stdout);
  }

  std::vector<float> drawn(std::int64_t number) {
    try {
      return sampler_->run(static_cast<std::int64_t>(config_.seed));
    } catch (const Failure& failure) {
      throw Failure(fmt::format("samples of step {}: {}: {}", number, failure.what(), advice()));
    }
  }

  void save(std::int64_t number) {
    const bool ends = number == config_.steps || number == options_.stop_at || interrupted != 0;
    if (options_.checkpoint_every == 0 && !ends) return;
    const fs::path folder = save_checkpoint(options_.out, config_, parameters_, state_,
                                            {.step = number,
                                             .skipped = divergence_.skipped(),
                                             .data_digest = data_.digest(),
                                             .promotions = promotions_.str(),
                                             .device = backend::device().name},
                                            options_.keep);
    fmt::print("step {}/{}  checkpoint: {}\n", number, config_.steps, folder.string());
    std::fflush(stdout);
  }

  TrainingConfig config_;
  TrainingOptions options_;
  Dataset data_;
  nn::Unet2d model_;
  nn::Parameters parameters_;
  nn::State state_;
  Promotions promotions_;
  Order order_;
  std::optional<RunLock> lock_;
  std::unique_ptr<ImageSource> source_;
  std::optional<EpsilonObjective> objective_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<HeldOut> held_out_;
  std::unique_ptr<OwnedRegion> average_copies_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Log> log_;
  Divergence divergence_;
  std::int64_t first_ = 0;  // the step after which this run began
  std::int64_t done_ = 0;   // the newest submitted step
  std::int64_t taken_ = 0;  // the newest step with collected results
  std::int64_t reported_ = -1;
  Interval interval_;
  Clock::time_point interval_began_;
};

}  // namespace

bool train(TrainingConfig config, const TrainingOptions& options) {
  config.check();
  return Training(std::move(config), options).run();
}

}  // namespace ladder::train
