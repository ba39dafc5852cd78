#include "train/training.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "nn/models/unet2d.h"
#include "runtime/chosen_versions.h"
#include "train/dataset.h"
#include "train/divergence.h"
#include "train/held_out.h"
#include "train/image_source.h"
#include "train/interval.h"
#include "train/model_files.h"
#include "train/peak.h"
#include "train/ranks.h"
#include "train/sample_grid.h"
#include "train/signals.h"
#include "train/step.h"

namespace ladder::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

class Training {
 public:
  Training(TrainingConfig config, const TrainingOptions& options, Ranks& ranks)
      : config_(std::move(config)),
        options_(options),
        ranks_(ranks),
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
    check_batch(config_, options_, ranks_.size());
    data_.check_digest();
    ranks_.compare(data_.digest(), promotions_.str());
    ranks_.connect();
    source_ = std::make_unique<ImageSource>(data_, batch_of_rank(), options_.device_data_bytes);
    begin_state();
    EpsilonOptions of_batch = epsilon_options(config_, source_->images());
    of_batch.batch = batch_of_rank();
    objective_.emplace(of_batch, model_, source_->pixels());
    step_ = std::make_unique<Step>(step_options(config_, options_, ranks_.communicator()), *objective_, parameters_,
                                   state_, promotions_);
    if (!source_->held_out().empty()) {
      of_batch.batch = config_.batch;
      held_out_ = std::make_unique<HeldOut>(of_batch, source_->held_out(), ranks_, model_,
                                            nn::Binding{.parameters = &parameters_,
                                                        .weights = state_.weights(),
                                                        .dtype = config_.dtype,
                                                        .promotions = &promotions_},
                                            source_->pixels(), promotions_);
    }
  }

  bool run() {
    if (ranks_.leads()) {
      save_options(options_);
      log_ = std::make_unique<Log>(options_.out / "log.jsonl", first_);
    }
    introduce();
    signals_.emplace();
    const std::int64_t last = options_.stop_at > 0 ? std::min(options_.stop_at, config_.steps) : config_.steps;
    if (first_ >= last) {
      ranks_.print("step {}/{}  nothing is left to do: the checkpoint is of this step\n", first_, config_.steps);
    }
    interval_began_ = Clock::now();
    if (first_ == 0) look_at_held_out(0);
    for (std::int64_t number = first_ + 1; number <= last && !stops(); ++number) {
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
      const Ranks::Pause pause(ranks_);
      const auto paused = Clock::now();
      if (due(number, options_.held_out_every) || number == last) look_at_held_out(number);
      if (due(number, options_.checkpoint_every) || number == last) save(number);
      if (due(number, options_.sample_every))
        draw(number);  // last, because it may fail: the checkpoint is written by now
      interval_began_ += Clock::now() - paused;
    }
    while (const auto results = step_->collect()) take(*results);
    if (stops() && done_ < last) {
      const Ranks::Pause pause(ranks_);
      save(done_);
      ranks_.print("interrupted after step {}: go on with --resume --out {}\n", done_, options_.out.string());
      return false;
    }
    return true;
  }

 private:
  static bool due(std::int64_t step, std::int64_t every) { return every > 0 && step % every == 0; }

  int batch_of_rank() const { return config_.batch / ranks_.size(); }

  // Several ranks stop at the same step: the first whose results say that one of them wants to.
  bool stops() const { return ranks_.size() > 1 ? told_to_stop_ : (signals_ && signals_->received()); }

  std::string advice() const {
    return fmt::format("go on from the last checkpoint in '{}' with a lower --lr", options_.out.string());
  }

  // Sets the state of rank 0, then that of all ranks.
  void begin_state() {
    if (ranks_.leads()) {
      options_.resume ? go_on() : begin();
    }
    if (ranks_.size() == 1) return;
    const auto [first, skipped] =
        Json::parse(ranks_.from_first(Json({first_, divergence_.skipped()}).dump())).get<std::array<std::int64_t, 2>>();
    first_ = done_ = taken_ = first;
    divergence_ = Divergence(advice(), skipped);
    const OwnedStream stream;
    for (const Region* region : {&state_.values, &state_.average, &state_.first_moments, &state_.second_moments}) {
      ranks_.communicator()->broadcast(region->base, region->bytes, 0, stream);
    }
    stream.synchronize();
    state_.set_values(state_.get(state_.values));  // their rounded copies
  }

  void go_on() {
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
    if (resumed.ranks != ranks_.size()) {
      fmt::print("note: the checkpoint is of {} ranks, this is of {}: sums have another order, so bits will differ\n",
                 resumed.ranks, ranks_.size());
    } else if (resumed.promotions != promotions_.str()) {
      fmt::print("note: other kernels than the checkpoint's: from here on bits will differ\n");
    } else if (resumed.device != backend::device().name) {
      fmt::print("note: the checkpoint is from {}, this is {}: bits may differ\n", resumed.device,
                 backend::device().name);
    }
  }

  void begin() {
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
    ranks_.print("model: {}, {} parameters, {} images of {} pixels a side a step{}, {}\n", config_.name,
                 parameters_.count(), config_.batch, config_.model.image_size,
                 config_.micro_batches > 1 ? fmt::format(" in {} micro-batches", config_.micro_batches) : "",
                 ladder::name(config_.dtype));
    ranks_.print("data: {} images to train on, {} held out, {}\n", data_.num_training(), data_.num_held_out(),
                 source_->streams() ? "streamed from the host" : "on the device");
    std::size_t operations = 0, fallbacks = 0;
    for (const Program* program : step_->programs()) {
      for (std::size_t i = 0; i < program->tape().operations().size(); ++i) {
        ++operations;
        if (program->choice(i).reason != "recorded") ++fallbacks;
      }
    }
    ranks_.print("device: {}; {} operations a step{}; {:.0f} MiB\n", device.name, operations,
                 options_.graph ? fmt::format(" in a graph of {} nodes", step_->num_nodes()) : ", no graph",
                 static_cast<double>(step_->bytes() + objective_->bytes() + state_.bytes() + source_->pixels().bytes) /
                     (1 << 20));
    if (ranks_.size() > 1) ranks_.print("ranks: {} on {}\n", ranks_.size(), ranks_.hosts());
    if (!promotions_.note().empty()) ranks_.print("kernels: {}\n", promotions_.note());
    if (fallbacks > 0)
      ranks_.print("kernels: {} of the operations without a record of their own: --explain\n", fallbacks);
  }

  // Returns this rank's images of step `number`.
  std::vector<std::int32_t> images_of(std::int64_t number) {
    std::vector<std::int32_t> batch(batch_of_rank());
    for (int i = 0; i < batch_of_rank(); ++i) {
      const std::int64_t in_batch = ranks_.rank() * batch_of_rank() + i;
      const std::int64_t position = config_.overfit_batch ? in_batch : (number - 1) * config_.batch + in_batch;
      const auto image = static_cast<std::int32_t>(order_.image(position));
      batch[i] = order_.flipped(position) ? -1 - image : image;
    }
    return batch;
  }

  // Returns the inputs of step `number` except its images, for all ranks. With overfit_batch, every step has the time
  // steps and noise of step 1.
  EpsilonInputs inputs_of(std::int64_t number) const {
    return epsilon_inputs(config_, config_.overfit_batch ? 1 : number);
  }

  void submit(std::int64_t number) {
    ranks_.set_step(number);
    EpsilonInputs batch = rows_of(inputs_of(number), ranks_.rank() * batch_of_rank(), batch_of_rank());
    batch.index = source_->load(images_of(number), step_->stream());
    const auto results =
        step_->submit({.batch = batch.bytes(), .hyper = hyper(config_, number), .stop = signals_->received()});
    source_->release(step_->stream());
    if (results) take(*results);
  }

  void take(const StepResults& results) {
    ++taken_;
    told_to_stop_ = told_to_stop_ || results.stop;
    if (divergence_.look_at(results, taken_)) interval_.add(results, inputs_of(taken_).t);
  }

  void report(std::int64_t last) {
    const double seconds = std::chrono::duration<double>(Clock::now() - interval_began_).count();
    interval_began_ = Clock::now();
    const std::int64_t steps = done_ - reported_ > 0 && reported_ >= first_ ? done_ - reported_ : done_ - first_;
    reported_ = done_;
    const double seconds_per_step = seconds / static_cast<double>(steps);
    const double tflops = ranks_.size() * step_->flops() / seconds_per_step * 1e-12;
    const double peak = ranks_.size() * peak_tflops(config_.dtype);
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
    if (ranks_.size() > 1) {
      double slowest = 0;
      for (const std::string& rank : ranks_.exchange(Json(seconds_per_step).dump())) {
        slowest = std::max(slowest, Json::parse(rank).get<double>());
      }
      line["ranks"] = ranks_.size();
      line["slowest_ms"] = 1e3 * slowest;
    }
    if (log_) log_->add(line);
    const bool is_gpu = backend::kind() == backend::Kind::gpu;
    ranks_.print("step {}/{}  {}  {}{}  {} left{}\n", done_, config_.steps,
                 any ? fmt::format("loss {:.5f}  gradient {:.3f}", interval_.loss / count, interval_.norm / count)
                     : "loss and gradient not finite",
                 is_gpu ? fmt::format("{:.2f} ms a step  {:.0f} images/s", 1e3 * seconds_per_step,
                                      config_.batch / seconds_per_step)
                        : fmt::format("{:.1f} s a step on the emulator", seconds_per_step),
                 is_gpu ? fmt::format("  {:.0f} TFLOP/s ({:.0f} % of {:.0f})", tflops, 100 * tflops / peak, peak) : "",
                 duration(seconds_per_step * static_cast<double>(last - done_)),
                 divergence_.skipped() > 0 ? fmt::format("  updates left out: {}", divergence_.skipped()) : "");
    interval_ = {};
  }

  void look_at_held_out(std::int64_t number) {
    if (!held_out_ || options_.held_out_every == 0) return;
    const double loss = held_out_->loss();
    if (log_) log_->add({{"step", number}, {"held_out_loss", loss}});
    ranks_.print("step {}/{}  held-out loss {:.5f}\n", number, config_.steps, loss);
  }

  void draw(std::int64_t number) {
    if (!samples_) {
      samples_ =
          std::make_unique<SampleGrid>(config_, options_.graph, model_, parameters_, state_, promotions_, ranks_);
    }
    const fs::path file = options_.out / "samples" / fmt::format("step_{:08}.png", number);
    try {
      samples_->draw(file);
    } catch (const RankEnded&) {
      throw;
    } catch (const Failure& failure) {
      throw Failure(fmt::format("samples of step {}: {}: {}", number, failure.what(), advice()));
    }
    ranks_.print("step {}/{}  samples: {}\n", number, config_.steps, file.string());
  }

  void save(std::int64_t number) {
    const bool ends = number == config_.steps || number == options_.stop_at || stops();
    if (options_.checkpoint_every == 0 && !ends) return;
    if (ranks_.size() > 1) compare_weights(number);
    if (!ranks_.leads()) return;
    const fs::path folder = save_checkpoint(options_.out, config_, parameters_, state_,
                                            {.step = number,
                                             .skipped = divergence_.skipped(),
                                             .data_digest = data_.digest(),
                                             .promotions = promotions_.str(),
                                             .device = backend::device().name,
                                             .ranks = ranks_.size()},
                                            options_.keep);
    ranks_.print("step {}/{}  checkpoint: {}\n", number, config_.steps, folder.string());
  }

  // Throws Failure on every rank where a rank's weights or their average are not rank 0's.
  void compare_weights(std::int64_t number) {
    const std::vector<std::string> digests = ranks_.exchange(weights_digest(state_));
    for (std::size_t rank = 1; rank < digests.size(); ++rank) {
      if (digests[rank] == digests[0]) continue;
      throw Failure(
          fmt::format("rank {} has other weights than rank 0 after step {}: no checkpoint was written; go on "
                      "with --resume from the last one in '{}'",
                      rank, number, options_.out.string()));
    }
  }

  TrainingConfig config_;
  TrainingOptions options_;
  Ranks& ranks_;
  std::optional<Signals> signals_;
  bool told_to_stop_ = false;  // by the results of a step of several ranks
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
  std::unique_ptr<SampleGrid> samples_;
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

void check_batch(const TrainingConfig& config, const TrainingOptions& options, int ranks) {
  const int parts = ranks * config.micro_batches;
  if (config.batch % parts != 0) {
    const int fewer = std::max(config.batch / parts, 1) * parts;
    throw UsageError(fmt::format("a batch of {} cannot be cut into {} ranks of {} micro-batches: --batch {} or {}",
                                 config.batch, ranks, config.micro_batches, fewer, fewer + parts));
  }
  if (options.reduce == "bf16" && config.micro_batches > 1) {
    throw UsageError("--reduce bf16 sums gradients as layers write them, which are of one micro-batch: --reduce fp32");
  }
}

StepOptions step_options(const TrainingConfig& config, const TrainingOptions& options, Communicator* communicator) {
  return {.dtype = config.dtype,
          .clip = config.clip > 0,
          .graph = options.graph,
          .branches = options.branches,
          .batches = options.batches,
          .communicator = communicator,
          .overlap = options.overlap,
          .buckets = options.buckets,
          .reduce = options.reduce == "bf16" ? Dtype::bf16 : Dtype::f32};
}

bool train(TrainingConfig config, const TrainingOptions& options, Ranks& ranks) {
  config.check();
  return Training(std::move(config), options, ranks).run();
}

bool train(TrainingConfig config, const TrainingOptions& options) {
  Ranks one;
  return train(std::move(config), options, one);
}

}  // namespace ladder::train
