// A training's parameters and optimizer state on the device, and the binding that a network is built on.
#pragma once

#include <memory>
#include <vector>

#include "nn/parameters.h"
#include "runtime/promoted.h"
#include "runtime/region.h"

namespace ladder::nn {

// Flat buffers of parameters to read: fp32 `values`, and `copies` rounded to the model's storage dtype (the same region
// where that is fp32).
struct WeightRegions {
  const Region* values = nullptr;
  const Region* copies = nullptr;
};

// Values, Adam's moments and the moving average, as flat fp32 buffers with the offsets of Parameters; `copies` holds
// the values in the model's storage dtype (null where that is fp32).
struct State {
  State(const Parameters& parameters, Dtype stored);

  OwnedRegion values;
  OwnedRegion first_moments;
  OwnedRegion second_moments;
  OwnedRegion average;  // the exponential moving average
  std::unique_ptr<OwnedRegion> copies;
  Dtype stored;

  WeightRegions weights() const { return {.values = &values, .copies = copies ? copies.get() : &values}; }

  // Copies between host and device; `host` and the result are [parameters.size()]. set_values() also sets the copies.
  void set(const OwnedRegion& which, const std::vector<float>& host);
  void set_values(const std::vector<float>& host);
  std::vector<float> get(const OwnedRegion& which) const;
  std::size_t bytes() const;
};

// Rounds a flat buffer to a device buffer of another dtype.
void copy_rounded(const std::vector<float>& flat, Dtype dtype, const OwnedRegion& to);

// Parameters, buffers and dtype that a network is built on. Everything it points to must outlive the network's tapes.
struct Binding {
  const Parameters* parameters = nullptr;
  WeightRegions weights;
  const Region* gradients = nullptr;  // see gradient_offset(); null: only the forward pass can be built
  Dtype dtype = Dtype::bf16;          // of the operations' problems; activations are stored in storage_dtype()
  // Decides where neighbouring operations are fused: where Promotions::serves() the fused problem. Null: nothing is
  // fused.
  const Promotions* promotions = nullptr;
};

}  // namespace ladder::nn
