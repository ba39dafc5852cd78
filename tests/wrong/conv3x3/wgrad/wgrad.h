// An honest kernel for the gradients of the weights and the bias, to spoil in one way each: a reduction over all pixels in
// two stages, partial sums of shares of the pixels and the sum of those.
#pragma once

#include "dev/conv3x3/conv3x3.h"
#include "tests/wrong/wrong.h"

namespace ladder::conv3x3::wgrad_wrong {

using wrong::kThreads;
using wrong::stored_dtypes;

struct Wgrad : conv3x3::Wgrad {
  static constexpr const char* kName = "wgrad_wrong";
};

constexpr int kShares = 4;

inline long long num_sums(const Problem& p) { return 9ll * p.k * p.c + (p.bias ? p.k : 0); }

// Outputs are counted as those of dw, then those of dbias.
template <class T>
struct View {
  Problem p;
  const T* x;
  const T* dy;
  T* dw;
  float* dbias;
  float* partial;  // [kShares][count()]

  View(const Problem& problem, const Wgrad::Tensors& t, void* space)
      : p(problem),
        x(static_cast<const T*>(t.x)),
        dy(static_cast<const T*>(t.dy)),
        dw(static_cast<T*>(t.dw)),
        dbias(t.dbias),
        partial(static_cast<float*>(space)) {}

  __host__ __device__ long long num_weights() const { return 9ll * p.k * p.c; }
  __host__ __device__ long long count() const { return num_weights() + (dbias ? p.k : 0); }
  __device__ bool is_bias(long long index) const { return index >= num_weights(); }
  __device__ float load(long long index) const {
    return is_bias(index) ? dbias[index - num_weights()] : to_float(dw[index]);
  }
  __device__ void store(long long index, float value) const {
    if (is_bias(index)) {
      dbias[index - num_weights()] = value;
    } else {
      dw[index] = from_float<T>(value);
    }
  }
  // The sum behind one output over some of the pixels.
  __device__ float sum(long long index, int begin, int end) const {
    const int k = static_cast<int>(is_bias(index) ? index - num_weights() : index / p.c / 9);
    const int dr = static_cast<int>(index / p.c / 3 % 3) - 1;
    const int ds = static_cast<int>(index / p.c % 3) - 1;
    float sum = 0;
    for (int pixel = begin; pixel < end; ++pixel) {
      const float gradient = to_float(dy[pixel * p.k + k]);
      const int row = pixel / p.w % p.h + dr;
      const int col = pixel % p.w + ds;
      if (is_bias(index)) {
        sum += gradient;
      } else if (row >= 0 && row < p.h && col >= 0 && col < p.w) {
        sum += gradient * to_float(x[(pixel + dr * p.w + ds) * p.c + index % p.c]);
      }
    }
    return sum;
  }
};

// What an honest kernel does, with each step open to a spoiled one.
struct Honest {
  __device__ int pixels_of_a_share(int pixels) const { return (pixels + kShares - 1) / kShares; }
  __device__ float rounded(float partial) const { return partial; }
  template <class T>
  __device__ float first(const View<T>&, long long /*index*/) const {
    return 0.0f;
  }
  __device__ int num_shares() const { return kShares; }
  __device__ float scale(const Problem&) const { return 1.0f; }
  template <class T>
  __device__ void store(const View<T>& v, long long index, float value) const {
    v.store(index, value);
  }
};

template <class Steps>
struct Partials {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Steps steps;
    const int pixels = v.p.n * v.p.h * v.p.w;
    const int each = steps.pixels_of_a_share(pixels);
    for (int share = 0; share < kShares; ++share) {
      const int begin = share * each < pixels ? share * each : pixels;
      const int end = begin + each < pixels ? begin + each : pixels;
      v.partial[share * v.count() + index] = steps.rounded(v.sum(index, begin, end));
    }
  }
};

template <class Steps>
struct Total {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Steps steps;
    float sum = steps.first(v, index);
    for (int share = 0; share < steps.num_shares(); ++share) {
      const int row = share < kShares ? share : kShares - 1;
      sum += v.partial[row * v.count() + index];
    }
    steps.store(v, index, sum * steps.scale(v.p));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Wgrad, View, Cheat>(p, t, workspace, stream);
}

template <class Steps>
void launch_both(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Partials<Steps>>(p, t, workspace, stream);
  launch_cheat<Total<Steps>>(p, t, workspace, stream);
}

inline std::size_t partial_bytes(const Problem& p) { return kShares * num_sums(p) * sizeof(float); }

}  // namespace ladder::conv3x3::wgrad_wrong
