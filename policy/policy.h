// Answers of a policy: actions out of noise, given an observation. An answer is a copy of the observation in, one replay of
// a graph that holds the noise, the observation's part of the condition and every denoising step, and a copy of the actions
// out; nothing is allocated or waited for within.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/stream.h"
#include "nn/models/unet1d_config.h"
#include "nn/models/unet1d_weights.h"
#include "policy/denoising_steps.h"
#include "policy/policy_file.h"
#include "runtime/program.h"
#include "runtime/promoted.h"

namespace ladder::denoise {

struct PolicyOptions {
  Dtype dtype = Dtype::f32;  // fp32, bf16 or fp16
  int samples = 1;           // observations that are answered at once
  // graph: one replay; launches: the same one by one; poisoned: for tests, with all memory in between filled with NaN
  enum class Run { graph, launches, poisoned };
  Run run = Run::graph;
  bool given_noise = false;  // noise is what set_noise() has said last, in the place of that of a seed
};

class Policy {
 public:
  // Prepares the graph: weights are packed, the condition's table is made. `promotions` must outlive the policy.
  Policy(const PolicyOptions& options, const PolicyFile& file, const DenoisingSteps& steps,
         const Promotions& promotions);
  ~Policy();

  // initial [samples, horizon, action_dim], steps [steps, samples, horizon, action_dim]; not while an answer is made.
  void set_noise(std::span<const float> initial, std::span<const float> steps);

  // [samples, horizon, action_dim] for observations [samples, observation], valid until the next answer. All noise follows
  // from the seed and the number of the answer. Throws Failure where an observation or an action is not finite.
  std::span<const float> answer(std::span<const float> observations, std::int64_t seed, std::int64_t number);

  // The same without the host, for a program whose tensors are on the device: all fp32, nothing normalised, nothing checked.
  // Of a policy with given noise.
  struct OnDevice {
    const float* condition;  // [samples, observation], Mish of the observations
    const float* initial;    // [samples, horizon, action_dim]
    const void* rounded;     // the same in the policy's dtype
    const float* steps;      // [steps, noise_row()], each row as `initial` and then nothing that counts
    float* actions;          // as `initial`
  };
  void enqueue(const OnDevice& tensors, Stream stream);
  std::size_t noise_row() const;

  const Program& program() const;

  // What a step is made of, and why, in one line.
  std::string step() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder::denoise
