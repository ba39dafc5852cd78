// One training step: a batch of images, noised, through the network and back, its gradients clipped, the parameters
// updated. Everything that changes from step to step lies on the device, so that the whole step is one graph, captured
// once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/graph.h"
#include "dev/diffusion/schedule.h"
#include "dev/optimizer/optimizer.h"
#include "train/config.h"
#include "train/parameters.h"
#include "train/program.h"
#include "train/promoted.h"
#include "train/unet.h"

namespace ladder::train {

// What the network learns, on the device: flat fp32 buffers with the offsets of Parameters, and the copy in the model's
// dtype (none where that is fp32).
struct State {
  State(const Parameters& parameters, Dtype stored);

  OwnedRegion values;
  OwnedRegion first_moments;
  OwnedRegion second_moments;
  OwnedRegion average;  // the exponential moving average
  std::unique_ptr<OwnedRegion> copies;
  Dtype stored;

  WeightRegions weights() const { return {.values = &values, .copies = copies ? copies.get() : &values}; }

  // To and from the host; each [parameters.size()]. Values also set the copies.
  void set(const OwnedRegion& which, const std::vector<float>& host);
  void set_values(const std::vector<float>& host);
  std::vector<float> get(const OwnedRegion& which) const;
  std::size_t bytes() const;
};

struct StepOptions {
  ModelConfig model;
  Dtype dtype = Dtype::bf16;  // bf16, fp32 or tf32
  int batch = 32;
  int micro_batches = 1;  // that a batch is cut into; their gradients are added up
  bool clip = true;       // by the global norm, at Hyper::max_norm
  bool graph = true;
  diffusion::Betas betas = diffusion::Betas::linear;
  int images = 1;  // of the data set on the device
};

// What changes from step to step.
struct StepInputs {
  std::vector<std::int32_t> index;  // [batch], as diffusion::Batch takes it
  std::vector<std::int32_t> t;      // [batch]
  std::int64_t seed = 0;            // of the noise
  std::int64_t offset = 0;          // of the noise's stream: another for every step
  optimizer::Hyper hyper{};
};

struct StepResults {
  std::vector<float> losses;  // [batch]: each image's mean squared error
  float loss = 0;             // their mean
  float norm = 0;             // of the gradient, before it was clipped
  float scale = 0;            // that it was multiplied by; 0: not finite, and the update was left out
  std::vector<std::int32_t> t;
};

class Step {
 public:
  // `pixels` [images, h, w, 3] uint8 on the device. All must outlive the step.
  Step(const StepOptions& options, const Parameters& parameters, State& state, const Region& pixels,
       const Promotions& promotions);
  ~Step();

  // Enqueues a step. The results of the oldest one are handed out as soon as several are on their way, or none where
  // there are only few.
  std::optional<StepResults> submit(const StepInputs& inputs);
  // Waits for the oldest step under way; none if there is none.
  std::optional<StepResults> collect();

  // For tests: a step outside any graph, with the arena poisoned.
  StepResults run_poisoned(const StepInputs& inputs);
  // For comparisons with other implementations: a step on these noised images and this noise, [batch, h, w, 3] each.
  StepResults run_given(const StepInputs& inputs, const std::vector<float>& noised, const std::vector<float>& noise);

  // Where steps run, for copies of images that must come before one, or after.
  Stream stream() const;

  const OwnedRegion& gradients() const;
  // Noised images and noise of the newest step, as [batch, h, w, 3] fp32.
  std::vector<float> noised() const;
  std::vector<float> noise() const;
  std::vector<float> prediction() const;  // of the last micro-batch
  std::vector<const Program*> programs() const;
  double flops() const;           // of a step
  std::size_t bytes() const;      // of device memory, without the state and the data
  std::size_t num_nodes() const;  // of the graph; 0 without one

  // Mean time of every operation in microseconds, one after the other as in a step, over `repeats` steps of one
  // micro-batch each, which train on what the last one was given. Zeros on the emulator.
  struct Timed {
    const Operation* operation;
    const Choice* choice;
    double us;
  };
  std::vector<Timed> time_operations(int repeats);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder::train
