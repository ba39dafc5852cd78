// The loss on images that training never sees, at time steps and noise that never change: comparable over a training,
// and between trainings on the same data.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/promoted.h"
#include "train/epsilon_objective.h"
#include "train/ranks.h"

namespace ladder::train {

class HeldOut {
 public:
  // `images` are the numbers of the held-out images in `pixels`, `options` those of the training's objective, with the
  // batch of all ranks. All arguments taken by reference must outlive this object. The binding has no gradients.
  HeldOut(const EpsilonOptions& options, std::vector<std::int32_t> images, Ranks& ranks, const nn::Model& model,
          const nn::Binding& binding, const Region& pixels, const Promotions& promotions);
  ~HeldOut();

  // The mean loss over all held-out images, of which each rank computes a part. Collective.
  double loss();

  // The time step of the i-th of `count` images: evenly spaced over [0, 1000).
  static std::int32_t time_step(std::size_t i, std::size_t count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder::train
