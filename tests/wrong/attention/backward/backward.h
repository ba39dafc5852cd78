// An honest backward kernel, to spoil in one way each: every element's thread makes p and ds of its row or column anew.
#pragma once

#include "tests/wrong/attention/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::attention::backward_wrong {

using wrong::stored_dtypes;

struct Backward : attention::Backward {
  static constexpr const char* kName = "backward_wrong";
};

// Outputs are counted as those of dqkv.
template <class T>
struct View {
  Problem p;
  const T* qkv;
  const T* o;
  const float* lse;
  const T* d_o;
  T* dqkv;

  View(const Problem& problem, const attention::Backward::Tensors& t, void*)
      : p(problem),
        qkv(static_cast<const T*>(t.qkv)),
        o(static_cast<const T*>(t.o)),
        lse(t.lse),
        d_o(static_cast<const T*>(t.d_o)),
        dqkv(static_cast<T*>(t.dqkv)) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.n) * p.t * p.heads * 3 * p.d; }
};

// Where an element of dqkv is.
struct Place {
  int image;
  int token;
  int head;
  int part;  // 0, 1 or 2: dq, dk or dv
  int channel;
};

// What an honest kernel does, with each step open to a spoiled one.
struct Honest {
  __device__ Place place(const Problem& p, long long index) const {
    return {.image = static_cast<int>(index / p.d / 3 / p.heads / p.t),
            .token = static_cast<int>(index / p.d / 3 / p.heads % p.t),
            .head = static_cast<int>(index / p.d / 3 % p.heads),
            .part = static_cast<int>(index / p.d % 3),
            .channel = static_cast<int>(index % p.d)};
  }
  __device__ int tokens(const Problem& p) const { return p.t; }  // that are summed over
  __device__ float scale(int d) const { return 1.0f / sqrtf(static_cast<float>(d)); }
  __device__ float scale_of_dq(float scale) const { return scale; }
  __device__ float scale_of_dk(float scale) const { return scale; }
  __device__ float probability(float score, float lse) const { return expf(score - lse); }
  __device__ float delta(float delta) const { return delta; }
  __device__ float ds(float probability, float dp) const { return probability * dp; }
  __device__ float add(float sum, float term) const { return sum + term; }
};

template <class T>
__device__ const T* row_of(const View<T>& v, const Place& at, int token, int part) {
  const long long row = (static_cast<long long>(at.image) * v.p.t + token) * v.p.heads + at.head;
  return v.qkv + (row * 3 + part) * v.p.d;
}

template <class T>
__device__ const T* row_of_o(const View<T>& v, const T* o, const Place& at, int token) {
  return o + ((static_cast<long long>(at.image) * v.p.t + token) * v.p.heads + at.head) * v.p.d;
}

template <class T>
__device__ float dot(const T* a, const T* b, int d) {
  float sum = 0;
  for (int x = 0; x < d; ++x) sum += to_float(a[x]) * to_float(b[x]);
  return sum;
}

template <class T, class Steps>
__device__ float probability(const View<T>& v, const Steps& steps, const Place& at, int query, int key) {
  const float score = steps.scale(v.p.d) * dot(row_of(v, at, query, 0), row_of(v, at, key, 1), v.p.d);
  return steps.probability(score, v.lse[(static_cast<long long>(at.image) * v.p.heads + at.head) * v.p.t + query]);
}

template <class T, class Steps>
__device__ float ds(const View<T>& v, const Steps& steps, const Place& at, int query, int key) {
  const T* const d_o = row_of_o(v, v.d_o, at, query);
  const float dp = dot(d_o, row_of(v, at, key, 2), v.p.d);
  const float delta = steps.delta(dot(d_o, row_of_o(v, v.o, at, query), v.p.d));
  return steps.ds(probability(v, steps, at, query, key), dp - delta);
}

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Steps steps;
    const Place at = steps.place(v.p, index);
    const float scale = steps.scale(v.p.d);
    float sum = 0;
    for (int other = 0; other < steps.tokens(v.p); ++other) {
      if (at.part == 0) {
        const float k = to_float(row_of(v, at, other, 1)[at.channel]);
        sum = steps.add(sum, steps.scale_of_dq(scale) * ds(v, steps, at, at.token, other) * k);
      } else if (at.part == 1) {
        const float q = to_float(row_of(v, at, other, 0)[at.channel]);
        sum = steps.add(sum, steps.scale_of_dk(scale) * ds(v, steps, at, other, at.token) * q);
      } else {
        const float d_o = to_float(row_of_o(v, v.d_o, at, other)[at.channel]);
        sum = steps.add(sum, probability(v, steps, at, other, at.token) * d_o);
      }
    }
    v.dqkv[index] = from_float<T>(sum);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Backward, View, Cheat>(p, t, workspace, stream);
}

}  // namespace ladder::attention::backward_wrong
