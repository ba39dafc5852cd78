// Device buffers of a case, each between two guard bands of canaries.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/registry.h"

namespace ladder {

// Convert between a tensor's values, in the order of spec.shape, and its bytes on the device, in spec.dtype.
std::vector<unsigned char> encoded(const TensorSpec& spec, const std::vector<float>& values);
std::vector<float> decoded(const TensorSpec& spec, const std::vector<unsigned char>& stored);

// Contents of writable memory before a launch.
enum class Contents : std::uint8_t {
  nan,            // bytes that are a NaN in every dtype: poison
  zero,           // bytes of 0
  random,         // numbers below 2 in magnitude, in every floating-point dtype
  partly_random,  // one line of 16 bytes in eight is random, the others are kept
  kept,           // unchanged
};

// Contents of the guard bands around a buffer.
enum class Bands : std::uint8_t {
  canaries,  // NaNs, so that an element read from outside its tensor shows in the result
  numbers,   // like memory of another allocation
};

// Inputs and inouts hold poison until the first refill(), outputs and workspace until they are written.
class DeviceTensors {
 public:
  DeviceTensors(const Case& c, std::size_t workspace_bytes, Bands bands = Bands::canaries);
  DeviceTensors(const Case& c, const HostTensors& inputs, std::size_t workspace_bytes);  // with refill(inputs)
  ~DeviceTensors();
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  void* const* data() const;  // in the order of Case::tensors
  Pointers pointers() const;
  std::vector<const void*> weights() const;  // those of is_weights()
  void* workspace() const;
  std::uint64_t workspace_digest() const;  // FNV-1a of its bytes

  void refill(const HostTensors& inputs);  // sets inputs, at the same addresses
  // Prepare a launch: restore inouts, set outputs and workspace to the given contents.
  void reset(Contents outputs = Contents::nan, Contents workspace = Contents::nan);
  // Replace inputs and inouts by poison until show_inputs(), which waits for no stream.
  void hide_inputs();
  void show_inputs();
  void protect_inputs(bool on);                     // while on, a write to an input is a fault on the emulator
  bool untouched() const;                           // no output was written since reset(); waits for no stream
  std::vector<std::vector<float>> outputs() const;  // outputs and inouts as fp32, in order; waits for the device
  std::string damage() const;                       // empty, or the overwritten guard band or input and the place

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder
