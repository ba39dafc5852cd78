// The loss on images that training never sees, at time steps and noise that never change: comparable over a training,
// and between trainings on the same data.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/promoted.h"
#include "train/denoising.h"

namespace ladder::train {

class HeldOut {
 public:
  // `images`: of `pixels`, the held-out ones, by number. `options` as those of the training's objective. All must outlive
  // this; the binding has no gradients.
  HeldOut(const DenoisingOptions& options, std::vector<std::int32_t> images, const nn::Model& model,
          const nn::Binding& binding, const Region& pixels, const Promotions& promotions);
  ~HeldOut();

  // The mean over all of them.
  double loss();

  // The time step of the i-th of `count` images: all of [0, 1000) in equal distances.
  static std::int32_t time_step(std::size_t i, std::size_t count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder::train
