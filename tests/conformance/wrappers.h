// Conformance: every function that has a GPU and an emulated branch, alone in a small kernel, on fixed random inputs.
// The same program, built for either backend, dumps the kernels' results; the two dumps are compared.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "core/backend.h"

namespace ladder::conformance {

// Result of a wrapper's kernel: 32-bit words, fp32 patterns if a tolerance is given. Two outputs agree if, for every
// word, the bits are equal, or |x - y| <= absolute + relative * max(|x|, |y|), or both are NaN.
struct Output {
  std::vector<std::uint32_t> words;
  std::vector<int> shape;
  double absolute = 0;  // both tolerances 0: compare bit for bit
  double relative = 0;
};

struct Wrapper {
  std::string name;
  Output (*run)();
};

bool add(std::string name, Output (*run)());
const std::vector<Wrapper>& all();  // sorted by name

// SplitMix64 with a fixed seed: the same inputs on every machine.
class Inputs {
 public:
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(bits() >> 40) * 0x1p-24f; }
  std::vector<float> uniforms(int count, float low, float high) {
    std::vector<float> values(count);
    for (float& value : values) value = uniform(low, high);
    return values;
  }
  std::vector<std::uint32_t> words(int count) {
    std::vector<std::uint32_t> values(count);
    for (auto& value : values) value = static_cast<std::uint32_t>(bits());
    return values;
  }

 private:
  std::uint64_t state_ = 2026;
};

// fp32 patterns that break conversions (zeros, subnormals, ties, largest numbers, infinities, NaNs), then random
// patterns.
std::vector<float> awkward_floats(int count);

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    backend::copy_in(pointer_, values.data(), values.size() * sizeof(T));
  }
  explicit DeviceArray(std::size_t count) : count_(count), pointer_(backend::allocate(count * sizeof(T))) {
    backend::set_bytes(pointer_, 0, count * sizeof(T));
  }
  ~DeviceArray() { backend::release(pointer_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() { return static_cast<T*>(pointer_); }
  std::vector<T> to_host() const {
    backend::synchronize();
    std::vector<T> values(count_);
    backend::copy_out(values.data(), pointer_, count_ * sizeof(T));
    return values;
  }

 private:
  std::size_t count_;
  void* pointer_;
};

inline std::vector<std::uint32_t> patterns(const std::vector<float>& values) {
  std::vector<std::uint32_t> words;
  for (const float value : values) words.push_back(std::bit_cast<std::uint32_t>(value));
  return words;
}

}  // namespace ladder::conformance

#define LADDER_CONFORMS(name, run) \
  [[maybe_unused]] const bool ladder_conforms_##name = ::ladder::conformance::add(#name, run);
