// Operations of the generic cheats on tensors of unknown meaning.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "core/backend.h"
#include "core/numeric.h"
#include "tests/wrong/cheat.h"

namespace ladder::wrong {

// Device functors, called for each index below a count.

template <class F>
__global__ void each_kernel(long long count, F f) {
  const long long i = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (i < count) f(i);
}

template <class F>
void for_each_index(std::size_t count, Stream stream, F f) {
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  if (blocks > 0) launch(each_kernel<F>, {.grid = blocks, .block = kThreads}, stream, static_cast<long long>(count), f);
}

template <class T>
struct Mean {
  const T* from;
  long long count;
  float* mean;
  __device__ void operator()(long long) const {
    float sum = 0;
    for (long long i = 0; i < count; ++i) sum += to_float(from[i]);
    *mean = sum / static_cast<float>(count);
  }
};

// to[i] = factor * to[i] + by + (from ? from[i % count] : 0)
template <class To, class From = float>
struct Change {
  To* to;
  float factor;  // 0 ignores the old value, even a NaN
  float by;
  const From* from = nullptr;
  long long count = 1;
  __device__ void operator()(long long i) const {
    float value = factor == 0 ? by : factor * to_float(to[i]) + by;
    if (from) value += to_float(from[i % count]);
    to[i] = from_float<To>(value);
  }
};

// Round to nearest even, dropping the last `bits` bits of the mantissa.
struct RoundInput {
  float* to;
  const float* from;
  int bits;
  __device__ void operator()(long long i) const {
    const unsigned word = __float_as_uint(from[i]);
    const unsigned half = (1u << (bits - 1)) - 1 + (word >> bits & 1u);
    to[i] = __uint_as_float((word + half) & ~((1u << bits) - 1));
  }
};

using Byte = unsigned char;

struct CopyBytes {
  Byte* to;
  const Byte* from;
  __device__ void operator()(long long i) const { to[i] = from[i]; }
};

struct FlipBit {
  Byte* at;
  __device__ void operator()(long long i) const { at[i] ^= 1; }
};

// Launch of a cheating version.
struct Call {
  const Version& honest;
  const Case& c;
  std::vector<void*> pointers;
  void* workspace;  // starts with the honest version's workspace
  Byte* scratch;    // the cheat's part of the workspace, poisoned like the rest
  Stream stream;

  void launch_honest() const { launch_version(honest, c, pointers.data(), workspace, stream); }

  std::optional<std::size_t> find(const std::string& name) const {
    for (std::size_t i = 0; i < c.tensors.size(); ++i) {
      if (c.tensors[i].name == name) return i;
    }
    return std::nullopt;
  }
  const TensorSpec& spec(std::size_t i) const { return c.tensors[i]; }
  Byte* bytes(std::size_t i) const { return static_cast<Byte*>(pointers[i]); }
  void copy(void* to, const void* from, std::size_t count) const {
    for_each_index(count, stream, CopyBytes{static_cast<Byte*>(to), static_cast<const Byte*>(from)});
  }
  // Call f with a pointer to the tensor's elements, in their type.
  template <class F>
  void with_elements(std::size_t i, F&& f) const {
    with_storage_type(spec(i).dtype, [&](auto element) { f(static_cast<decltype(element)*>(pointers[i])); });
  }
  // Replace every element by factor * element + by.
  void change(std::size_t i, float factor, float by) const {
    with_elements(i, [&](auto* y) { for_each_index(spec(i).elements(), stream, Change{y, factor, by}); });
  }
  // Add the tensor's copy in the cheat's part of the workspace.
  void add_scratch(std::size_t i) const {
    const std::size_t count = spec(i).elements();
    with_elements(i, [&]<class T>(T* y) {
      for_each_index(count, stream,
                     Change<T, T>{y, 1.0f, 0.0f, reinterpret_cast<const T*>(scratch), static_cast<long long>(count)});
    });
  }
};

using Body = std::function<void(const Call&)>;

// Device memory that outlives a launch, reallocated for each case and its buffers.
class Kept {
 public:
  // Returns true if the memory belongs to this call's case and buffers; else allocates `bytes` for them.
  bool is_of(const Call& call, std::size_t bytes) {
    if (memory_ && text_ == call.c.text && pointers_ == call.pointers) return true;
    memory_ = {backend::allocate(std::max<std::size_t>(bytes, 1)), backend::release};
    text_ = call.c.text;
    pointers_ = call.pointers;
    return false;
  }
  Byte* data() const { return static_cast<Byte*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
  std::string text_;
  std::vector<void*> pointers_;
};

}  // namespace ladder::wrong
