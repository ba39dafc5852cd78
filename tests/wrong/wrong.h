// The pass of the kernels that cheat, and what they are made of: an honest kernel, to spoil in one way each.
#pragma once

#include "core/backend.h"
#include "core/numeric.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::wrong {

using conv3x3::Problem;

// conv3x3/fprop under another name, so that no benchmark or trainer ever meets these versions.
struct Fprop : conv3x3::Fprop {
  static constexpr const char* kName = "fprop_wrong";
};

template <class T>
struct View {
  Problem p;
  const T* x;
  const T* w;
  const float* bias;
  T* y;
  float* workspace;

  __device__ long long count() const { return static_cast<long long>(p.n) * p.h * p.w * p.k; }
};

// What an honest kernel makes of one output element, with each step open to a spoiled one.
struct Honest {
  // tap is r * 3 + s.
  __device__ bool uses_tap(const Problem&, int /*row*/, int /*col*/, int /*tap*/) const { return true; }
  __device__ int channels(const Problem& p) const { return p.c; }
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return (static_cast<long long>(k) * 9 + tap) * p.c + c;
  }
  __device__ float add(float sum, float term) const { return sum + term; }
  __device__ float first(const float* bias, int k) const { return bias ? bias[k] : 0.0f; }
};

template <class T, class Steps>
__device__ float output(const View<T>& v, const Steps& steps, long long index) {
  const Problem& p = v.p;
  const int k = static_cast<int>(index % p.k);
  const long long pixel = index / p.k;
  const int col = static_cast<int>(pixel % p.w);
  const int row = static_cast<int>(pixel / p.w % p.h);
  float sum = steps.first(v.bias, k);
  for (int tap = 0; tap < 9; ++tap) {
    const int dr = tap / 3 - 1;
    const int ds = tap % 3 - 1;
    const bool inside = row + dr >= 0 && row + dr < p.h && col + ds >= 0 && col + ds < p.w;
    if (!inside || !steps.uses_tap(p, row, col, tap)) continue;
    for (int c = 0; c < steps.channels(p); ++c) {
      const float x = to_float(v.x[(pixel + dr * p.w + ds) * p.c + c]);
      sum = steps.add(sum, x * to_float(v.w[steps.weight(p, k, tap, c)]));
    }
  }
  return sum;
}

template <class T>
__device__ float output(const View<T>& v, long long index) {
  return output(v, Honest{}, index);
}

constexpr int kThreads = 64;

// Cheat::operator()(view, index) is called for every output element.
template <class T, class Cheat>
__global__ void wrong_kernel(View<T> view, Cheat cheat) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index < view.count()) cheat(view, index);
}

inline unsigned num_blocks(const Problem& p) {
  return static_cast<unsigned>((p.pixels() * p.k + kThreads - 1) / kThreads);
}

template <class Cheat>
void launch_with(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream, const LaunchConfig& config,
                 Cheat cheat = {}) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const View<T> view{p,      static_cast<const T*>(t.x), static_cast<const T*>(t.w),
                       t.bias, static_cast<T*>(t.y),       static_cast<float*>(workspace)};
    launch(wrong_kernel<T, Cheat>, config, stream, view, cheat);
  });
}

template <class Cheat>
void launch_cheat(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  launch_with<Cheat>(p, t, workspace, stream, {.grid = num_blocks(p), .block = kThreads});
}

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.y[index] = from_float<T>(output(v, Steps{}, index));
  }
};

inline std::vector<Dtype> stored_dtypes() { return {Dtype::f32, Dtype::bf16, Dtype::f16}; }

inline std::size_t a_float_for_each_output(const Problem& p) { return p.pixels() * p.k * sizeof(float); }

inline const char* needs_streams(const Problem&) {
  return backend::kind() == backend::Kind::emulator ? "the emulator has no streams" : nullptr;
}

}  // namespace ladder::wrong
