// The objective of a diffusion model (Ho et al. 2020): the mean squared error of the noise that a network predicts from
// images noised at random time steps.
#pragma once

#include <cstdint>
#include <vector>

#include "dev/diffusion/betas.h"
#include "dev/diffusion/diffusion.h"
#include "nn/model.h"
#include "train/objective.h"

namespace ladder::train {

// Host inputs from which the device makes a batch.
struct EpsilonInputs {
  std::vector<std::int32_t> index;  // [batch] image numbers, -1 - number for a mirrored image (diffusion::Batch)
  std::vector<std::int32_t> t;      // [batch] time steps
  std::int64_t seed = 0;            // of the noise
  std::int64_t offset = 0;          // of the noise's Philox stream; differs for every step
  std::int64_t first = 0;           // number of the first image in the noise's stream

  std::vector<std::byte> bytes() const;  // in the layout that EpsilonObjective has on the device
};

// The problem of dev/diffusion's passes on `samples` of a model's images.
diffusion::Problem diffusion_problem(const nn::Model& model, int samples, Dtype dtype);

struct EpsilonOptions {
  Dtype dtype = Dtype::bf16;  // of the model: bf16, fp32 or tf32
  int batch = 32;
  int micro_batches = 1;  // parts that a batch is cut into
  diffusion::Betas betas = diffusion::Betas::linear;
  int images = 1;  // of the data set on the device
};

class EpsilonObjective : public Objective {
 public:
  // `pixels` is [images, sample of the model] uint8 on the device. `model` and `pixels` must outlive this object.
  // Throws UsageError where the batch is not divisible by the number of micro-batches.
  EpsilonObjective(const EpsilonOptions& options, const nn::Model& model, const Region& pixels);

  int batch() const override { return options_.batch; }
  int part() const override { return options_.batch / options_.micro_batches; }
  std::size_t input_bytes() const override;
  void append_batch(Tape& tape, const Region& inputs) const override;
  std::vector<ArrayRows> arrays(const Region& inputs) const override;
  void append_loss(Tape& tape, const nn::Binding& binding, const std::vector<ArrayRows>& rows, ValueId losses,
                   ValueId loss) const override;

  // Noised images and noise of the newest batch, and the prediction for its last micro-batch, as [n, sample] fp32.
  std::vector<float> noised() const { return decoded(noised_, stored()); }
  std::vector<float> noise() const { return decoded(noise_, Dtype::f32); }
  std::vector<float> prediction() const { return decoded(predicted_, stored()); }
  // Sets a batch in place of the one that append_batch() makes, for comparisons with other implementations.
  void set_batch(const std::vector<float>& noised, const std::vector<float>& noise);

  std::size_t bytes() const { return noised_.bytes + noise_.bytes + table_.bytes + predicted_.bytes; }  // on the device

 private:
  Dtype stored() const { return storage_dtype(options_.dtype); }
  static std::vector<float> decoded(const Region& region, Dtype dtype);

  EpsilonOptions options_;
  const nn::Model& model_;
  const Region& pixels_;
  OwnedRegion noised_, noise_, table_, predicted_;
};

}  // namespace ladder::train
