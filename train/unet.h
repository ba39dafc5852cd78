// The U-Net as operations on a tape. One function a kind of layer, each with its forward pass and its gradients.
#pragma once

#include "train/architecture.h"
#include "train/parameters.h"
#include "train/tape.h"

namespace ladder::train {

// A flat buffer of parameters to read: fp32, and rounded to the model's dtype (the same region where that is fp32).
struct WeightRegions {
  const Region* values = nullptr;
  const Region* copies = nullptr;
};

// Where gradients are written, by the ranges of Parameters: those of matrices in the model's dtype, the others in fp32,
// each in a flat buffer with the offsets of Parameters.
struct GradientRegions {
  const Region* matrices = nullptr;
  const Region* others = nullptr;
  // [n, Parameters::embedding_rows()] fp32, zero where no block has a row: the gradient of all blocks' embedding
  // layers.
  const Region* embedding = nullptr;
};

class Unet {
 public:
  // `dtype`: of the model's problems; activations are stored in it, tf32 as fp32. Without `gradients` only the forward
  // pass can be built. What it is given must outlive it and the tape.
  Unet(const ModelConfig& config, const Parameters& parameters, Dtype dtype, int images, const WeightRegions& weights,
       const GradientRegions* gradients = nullptr);

  Dtype stored() const { return storage_dtype(dtype_); }

  // Appends the forward pass. x [n, h, w, 3] as stored, in a region; t [n], int32 or fp32. Returns the prediction of
  // the noise, of x's shape and dtype, which lies in `prediction` if that is given.
  ValueId forward(Tape& tape, ValueId x, ValueId t, const Region* prediction = nullptr) const;

 private:
  class Builder;

  ModelConfig config_;
  Architecture architecture_;
  const Parameters& parameters_;
  Dtype dtype_;
  int images_;
  WeightRegions weights_;
  const GradientRegions* gradients_;
};

}  // namespace ladder::train
