// Sampling of images from noise (DDIM or DDPM). A graph covers several steps and begins with the time-step embeddings
// of all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dev/diffusion/scheduler.h"
#include "nn/model.h"
#include "runtime/program.h"
#include "runtime/promoted.h"

namespace ladder::train {

enum class SamplerKind { ddim, ddpm };

// Options of a sampler. Coefficients are computed in double (diffusion::SchedulerConfig::in_double).
struct SamplerOptions {
  Dtype dtype = Dtype::bf16;
  int images = 64;  // per batch
  SamplerKind kind = SamplerKind::ddim;
  int steps = 50;
  int eta_percent = 0;  // ddim: 0 is deterministic, 100 has ddpm's noise
  bool large = false;   // ddpm: the variance is beta ("fixed_large"), else the posterior's ("fixed_small")
  bool clip = true;     // clip the predicted image to [-1, 1]
  diffusion::Betas betas = diffusion::Betas::linear;
  bool graph = true;
  int graph_steps = 10;  // steps per graph; the last graph may have fewer
};

class Sampler {
 public:
  // The weights are read at each run. All arguments but `options` must outlive the sampler.
  Sampler(const SamplerOptions& options, const nn::Model& model, const nn::Parameters& parameters,
          const nn::WeightRegions& weights, const Promotions& promotions);
  ~Sampler();

  // Returns images [images, h, w, 3] with values around [-1, 1]: those with the numbers `first`, `first` + 1, ... of
  // `seed`. An image's noise depends on the seed and its number alone, not on the batch size. Calls after_graph(steps
  // done) after each graph. Throws Failure where a value is not finite.
  std::vector<float> run(std::int64_t seed, std::int64_t first = 0, const std::function<void(int)>& after_graph = {});

  const Program& program() const;  // the steps of one graph

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder::train
