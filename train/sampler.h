// Images out of noise: the steps of a sampler with the network in each, several steps a graph, which begins with the
// embeddings of all of them.
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

// Coefficients are made in double (diffusion::SchedulerConfig::in_double).
struct SamplerOptions {
  Dtype dtype = Dtype::bf16;
  int images = 64;  // at a time
  SamplerKind kind = SamplerKind::ddim;
  int steps = 50;
  int eta_percent = 0;  // ddim: 0 is deterministic, 100 has ddpm's noise
  bool large = false;   // ddpm: the variance is beta ("fixed_large"), else the posterior's ("fixed_small")
  bool clip = true;     // the predicted image, to [-1, 1]
  diffusion::Betas betas = diffusion::Betas::linear;
  bool graph = true;
  int graph_steps = 10;  // of a graph; a last one may have fewer
};

class Sampler {
 public:
  // Reads the weights at each run. What it is given must outlive it.
  Sampler(const SamplerOptions& options, const nn::Model& model, const nn::Parameters& parameters,
          const nn::WeightRegions& weights, const Promotions& promotions);
  ~Sampler();

  // [images, h, w, 3], values around [-1, 1], of which the first has number `first` among all that are drawn with that
  // seed. An image's noise follows from the seed and its number, however many are drawn at a time. `after_graph` is told
  // how many steps are done. Throws Failure where a value is not finite.
  std::vector<float> run(std::int64_t seed, std::int64_t first = 0, const std::function<void(int)>& after_graph = {});

  const Program& program() const;  // of the steps of a graph

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder::train
