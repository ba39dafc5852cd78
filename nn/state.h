// What a model has learned, on the device, and what a network is built on.
#pragma once

#include <memory>
#include <vector>

#include "nn/parameters.h"
#include "runtime/promoted.h"
#include "runtime/region.h"

namespace ladder::nn {

// A flat buffer of parameters to read: fp32, and rounded to the model's dtype (the same region where that is fp32).
struct WeightRegions {
  const Region* values = nullptr;
  const Region* copies = nullptr;
};

// Values, Adam's moments and the moving average: flat fp32 buffers with the offsets of Parameters; and the values in the
// model's dtype (none where that is fp32).
struct State {
  State(const Parameters& parameters, Dtype stored);

  OwnedRegion values;
  OwnedRegion first_moments;
  OwnedRegion second_moments;
  OwnedRegion average;  // the exponential moving average
  std::unique_ptr<OwnedRegion> copies;
  Dtype stored;

  WeightRegions weights() const { return {.values = &values, .copies = copies ? copies.get() : &values}; }

  // To and from the host; each [parameters.size()]. Values also set the copies.
  void set(const OwnedRegion& which, const std::vector<float>& host);
  void set_values(const std::vector<float>& host);
  std::vector<float> get(const OwnedRegion& which) const;
  std::size_t bytes() const;
};

// Rounds a flat buffer to a device buffer of another dtype.
void copy_rounded(const std::vector<float>& flat, Dtype dtype, const OwnedRegion& to);

// What a network is built on. All that it points to must outlive the network's tapes.
struct Binding {
  const Parameters* parameters = nullptr;
  WeightRegions weights;
  const Region* gradients = nullptr;  // see gradient_offset(); null: only the forward pass can be built
  Dtype dtype = Dtype::bf16;          // of its problems; activations are stored in storage_dtype()
  // An operation does its neighbours' work where these serve that; null: each does its own.
  const Promotions* promotions = nullptr;
};

}  // namespace ladder::nn
