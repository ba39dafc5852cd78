// An honest forward kernel, to spoil in one way each.
#pragma once

#include "dev/conv3x3/conv3x3.h"
#include "tests/wrong/wrong.h"

namespace ladder::conv3x3::fprop_wrong {

using wrong::kThreads;
using wrong::needs_streams;
using wrong::stored_dtypes;

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

  View(const Problem& problem, const Fprop::Tensors& t, void* space)
      : p(problem),
        x(static_cast<const T*>(t.x)),
        w(static_cast<const T*>(t.w)),
        bias(t.bias),
        y(static_cast<T*>(t.y)),
        workspace(static_cast<float*>(space)) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.n) * p.h * p.w * p.k; }
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

template <class Cheat>
void launch_with(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream,
                 const LaunchConfig& config) {
  wrong::launch_with<Fprop, View, Cheat>(p, t, workspace, stream, config);
}

template <class Cheat>
void launch_cheat(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Fprop, View, Cheat>(p, t, workspace, stream);
}

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.y[index] = from_float<T>(output(v, Steps{}, index));
  }
};

inline unsigned num_blocks(const Problem& p) { return wrong::num_blocks(p.pixels() * p.k); }

inline std::size_t a_float_for_each_output(const Problem& p) { return p.pixels() * p.k * sizeof(float); }

}  // namespace ladder::conv3x3::fprop_wrong
