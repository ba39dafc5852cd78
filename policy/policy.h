// Answers of a policy: actions denoised from noise, given an observation. An answer copies the observation to the
// device, replays one graph (noise, the observation's FiLM rows, all denoising steps) and copies the actions to the
// host. There is no allocation and no synchronisation in between.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/stream.h"
#include "nn/models/unet1d_config.h"
#include "nn/models/unet1d_weights.h"
#include "policy/policy_file.h"
#include "policy/sampling_schedule.h"
#include "runtime/program.h"
#include "runtime/promoted.h"

namespace ladder::denoise {

struct PolicyOptions {
  Dtype dtype = Dtype::f32;  // fp32, bf16 or fp16
  int samples = 1;           // observations per answer
  // graph: one replay; launches: each operation launched separately; poisoned: likewise with the arena filled with NaN,
  // for tests.
  enum class Run { graph, launches, poisoned };
  Run run = Run::graph;
  bool given_noise = false;  // use the noise of set_noise() or enqueue() instead of noise drawn from a seed
};

class Policy {
 public:
  // Packs the weights, computes the FiLM table of the time steps and prepares the graph. `promotions` must outlive the
  // policy.
  Policy(const PolicyOptions& options, const PolicyFile& file, const SamplingSchedule& steps,
         const Promotions& promotions);
  ~Policy();

  // Sets the noise: initial [samples, horizon, action_dim], steps [steps, samples, horizon, action_dim]. Do not call
  // while an answer is in flight.
  void set_noise(std::span<const float> initial, std::span<const float> steps);

  // Returns actions [samples, horizon, action_dim] for observations [samples, observation], valid until the next
  // answer. All noise follows from the seed and the answer's number. Throws Failure where an observation or an action
  // is not finite.
  std::span<const float> answer(std::span<const float> observations, std::int64_t seed, std::int64_t number);

  // Enqueues an answer from and to tensors on the device, fp32 except `rounded`. There is no normalisation and no check
  // for finite values. Requires PolicyOptions::given_noise.
  struct OnDevice {
    const float* condition;  // [samples, observation], Mish of the observations
    const float* initial;    // [samples, horizon, action_dim]
    const void* rounded;     // `initial` rounded to the policy's dtype
    const float* steps;      // [steps, noise_row()], each row [samples, horizon, action_dim] and then padding
    float* actions;          // [samples, horizon, action_dim]
  };
  void enqueue(const OnDevice& tensors, Stream stream);
  std::size_t noise_row() const;

  const Program& program() const;

  // Describes the implementation of a step and the reason for it, in one line (StepChoice::str()).
  std::string step() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder::denoise
