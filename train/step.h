// One training step: make a batch, run the network forward and backward, clip the gradients, update the parameters.
// Everything that changes from step to step is read from device memory, so that the whole step is one graph, captured
// once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/communicator.h"
#include "core/graph.h"
#include "dev/optimizer/optimizer.h"
#include "nn/state.h"
#include "runtime/program.h"
#include "runtime/promoted.h"
#include "train/objective.h"
#include "train/rank_sum.h"

namespace ladder::train {

struct StepOptions {
  Dtype dtype = Dtype::bf16;  // of the model: bf16, fp32 or tf32
  bool clip = true;           // clip gradients by their global norm at Hyper::max_norm
  bool graph = true;
  bool branches = true;  // run operations marked `beside` on a side stream
  bool batches = true;   // nn/batches.h

  // Ranks that each compute a part of the batch. Null: this process computes all of it.
  Communicator* communicator = nullptr;
  bool overlap = true;        // sum gradients beside the backward pass, bucket by bucket, not after it
  int buckets = 3;            // of the matrices' gradients (train/rank_sum.h)
  Dtype reduce = Dtype::f32;  // sum gradients in fp32, or, if bf16, as the model's layers write them
  bool time_sums = false;     // the graph has marks for Step::sum_times(); a mark costs 1.0 to 1.5 us
};

// Inputs that change from step to step.
struct StepInputs {
  std::vector<std::byte> batch;  // of this rank: Objective::input_bytes() bytes
  optimizer::Hyper hyper{};
  bool stop = false;  // this rank wants to end
};

// Results, the same on every rank.
struct StepResults {
  std::vector<float> losses;  // [batch], of all ranks
  float loss = 0;             // mean of the losses
  float norm = 0;             // global norm of the gradients before clipping
  float scale = 0;            // factor of the gradients; 0: the norm was not finite, and the update was skipped
  bool stop = false;          // a rank wants to end
};

class Step {
 public:
  // All arguments but `options` must outlive the step.
  Step(const StepOptions& options, const Objective& objective, const nn::Parameters& parameters, nn::State& state,
       const Promotions& promotions);
  ~Step();

  // Enqueues a step. If kMaxInFlight steps are already in flight, waits for the oldest and returns its results; else
  // returns nullopt.
  static constexpr std::size_t kMaxInFlight = 4;
  std::optional<StepResults> submit(const StepInputs& inputs);
  // Waits for the oldest step in flight and returns its results, or nullopt if no step is in flight.
  std::optional<StepResults> collect();

  // Runs a step outside any graph with the arena poisoned, for tests.
  StepResults run_poisoned(const StepInputs& inputs);
  // Runs a step on the batch in device memory without making a new one, for comparisons with other implementations.
  StepResults run_on_batch(const StepInputs& inputs);

  // Enqueues the graph once more, on the inputs of the last step. No step may be in flight on another stream.
  void replay(Stream stream) const;

  // When the network's backward pass ended in the newest replay of the graph, which has ended, and when each sum over ranks
  // began and ended, in seconds after the step's start. Needs StepOptions::time_sums and several ranks.
  struct SumTimes {
    double network_s = 0;
    std::vector<RankSum::Sum> sums;
  };
  SumTimes sum_times() const;

  // The stream of all steps, for data copies that must be ordered before or after a step.
  Stream stream() const;

  // Gradients of the newest step as fp32, with the offsets of Parameters.
  std::vector<float> gradients() const;
  std::vector<const Program*> programs() const;
  double flops() const;           // of a step
  std::size_t bytes() const;      // of device memory, without the state and the objective
  std::size_t num_nodes() const;  // of the graph; 0 without one

  // Enqueues the operations of a step, as in its graph, without the copies of inputs and results. Calls after(program,
  // operation) after each operation, so that a caller can mark or inspect it.
  void enqueue(Stream stream, const std::function<void(const Program&, std::size_t)>& after) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder::train
