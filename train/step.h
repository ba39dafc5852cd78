// One training step: a batch, its loss through the network and back, the gradients clipped, the parameters updated.
// Everything that changes from step to step lies on the device, so that the whole step is one graph, captured once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/graph.h"
#include "dev/optimizer/optimizer.h"
#include "nn/state.h"
#include "runtime/program.h"
#include "runtime/promoted.h"
#include "train/objective.h"

namespace ladder::train {

struct StepOptions {
  Dtype dtype = Dtype::bf16;  // of the model: bf16, fp32 or tf32
  bool clip = true;           // by the global norm, at Hyper::max_norm
  bool graph = true;
  bool branches = true;  // small operations beside the others
  bool batches = true;   // nn/batches.h
};

// What changes from step to step.
struct StepInputs {
  std::vector<std::byte> batch;  // the objective's
  optimizer::Hyper hyper{};
};

struct StepResults {
  std::vector<float> losses;  // [batch]
  float loss = 0;             // their mean
  float norm = 0;             // of the gradient, before it was clipped
  float scale = 0;            // that it was multiplied by; 0: not finite, and the update was left out
};

class Step {
 public:
  // All must outlive the step.
  Step(const StepOptions& options, const Objective& objective, const nn::Parameters& parameters, nn::State& state,
       const Promotions& promotions);
  ~Step();

  // Enqueues a step. The results of the oldest one are handed out as soon as kMaxInFlight are on their way, or none
  // where there are fewer.
  static constexpr std::size_t kMaxInFlight = 4;
  std::optional<StepResults> submit(const StepInputs& inputs);
  // Waits for the oldest step in flight; none if there is none.
  std::optional<StepResults> collect();

  // For tests: a step outside any graph, with the arena poisoned.
  StepResults run_poisoned(const StepInputs& inputs);
  // For comparisons with other implementations: a step on the batch that is there, none being made.
  StepResults run_on_batch(const StepInputs& inputs);

  // Enqueues the graph alone, once more on what the last step was given; none may be in flight on another stream.
  void replay(Stream stream) const;

  // Where steps run, for copies of data that must come before one, or after.
  Stream stream() const;

  // Of the newest step, with the offsets of Parameters.
  std::vector<float> gradients() const;
  std::vector<const Program*> programs() const;
  double flops() const;           // of a step
  std::size_t bytes() const;      // of device memory, without the state and the objective
  std::size_t num_nodes() const;  // of the graph; 0 without one

  // Enqueues a step without its inputs and results, as its graph has it; after(program, operation) is called after each
  // operation, for what looks between them.
  void enqueue(Stream stream, const std::function<void(const Program&, std::size_t)>& after) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder::train
