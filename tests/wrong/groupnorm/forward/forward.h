// An honest forward kernel, to spoil in one way each: every element's thread makes its group's statistics anew.
#pragma once

#include "dev/groupnorm/statistics.h"
#include "tests/wrong/groupnorm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::groupnorm::forward_wrong {

using wrong::stored_dtypes;

struct Forward : groupnorm::Forward {
  static constexpr const char* kName = "forward_wrong";
};

template <class T>
struct View {
  Problem p;
  const T* x;
  const float* gamma;
  const float* beta;
  T* y;
  float* mean;
  float* rstd;
  float* workspace;

  View(const Problem& problem, const groupnorm::Forward::Tensors& t, void* space)
      : p(problem),
        x(static_cast<const T*>(t.x)),
        gamma(t.gamma),
        beta(t.beta),
        y(static_cast<T*>(t.y)),
        mean(t.mean),
        rstd(t.rstd),
        workspace(static_cast<float*>(space)) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.n) * p.h * p.w * p.c; }
  __host__ __device__ int num_groups() const { return p.n * p.g; }
  __device__ int channel(long long index) const { return static_cast<int>(index % p.c); }
  __device__ int image(long long index) const { return static_cast<int>(index / p.c / (p.h * p.w)); }
  __device__ int group(long long index) const { return image(index) * p.g + channel(index) / (p.c / p.g); }
  // The first element of the group, and whether this is it.
  __device__ long long first(int group) const {
    return static_cast<long long>(group / p.g) * p.h * p.w * p.c + group % p.g * (p.c / p.g);
  }
  __device__ bool is_first(long long index) const { return index == first(group(index)); }
};

// What an honest kernel does, with each step open to a spoiled one.
struct Honest {
  // The elements that a group's statistics are taken of.
  __device__ int group(const Problem&, int group) const { return group; }
  __device__ int pixels(const Problem& p) const { return p.h * p.w; }
  __device__ int channels(const Problem& p) const { return p.c / p.g; }

  __device__ float add(float sum, float term) const { return sum + term; }
  __device__ float centred(float x, const Normaliser& s) const { return x - s.pivot - s.delta; }
  __device__ float centred_for_variance(float x, const Normaliser& s) const { return centred(x, s); }
  __device__ float divisor(float count) const { return count; }
  __device__ float rstd(float variance) const { return rstd_of(variance); }

  __device__ float gamma(const float* gamma, int c) const { return gamma ? gamma[c] : 1.0f; }
  __device__ float beta(const float* beta, int c) const { return beta ? beta[c] : 0.0f; }
  __device__ float activated(Activation activation, float z) const { return value_of(activation, z); }
  template <class T>
  __device__ void store_statistics(const View<T>& v, int group, const Normaliser& s) const {
    v.mean[group] = s.pivot + s.delta;
    v.rstd[group] = s.rstd;
  }
};

template <class T, class Steps>
__device__ Normaliser statistics_of(const View<T>& v, const Steps& steps, int group) {
  const T* const x = v.x + v.first(steps.group(v.p, group));
  const auto sum_of = [&](const auto& term) {
    float sum = 0;
    for (int pixel = 0; pixel < steps.pixels(v.p); ++pixel) {
      for (int c = 0; c < steps.channels(v.p); ++c) sum = steps.add(sum, term(to_float(x[pixel * v.p.c + c])));
    }
    return sum;
  };
  const auto count = static_cast<float>(steps.pixels(v.p) * steps.channels(v.p));
  Normaliser s{.pivot = to_float(x[0])};
  s.delta = sum_of([&](float value) { return value - s.pivot; }) / count;
  const float squares = sum_of([&](float value) {
    const float centred = steps.centred_for_variance(value, s);
    return centred * centred;
  });
  s.rstd = steps.rstd(squares / steps.divisor(count));
  return s;
}

template <class T, class Steps>
__device__ float output(const View<T>& v, const Steps& steps, long long index, const Normaliser& s) {
  const int c = v.channel(index);
  const float xhat = steps.centred(to_float(v.x[index]), s) * s.rstd;
  return steps.activated(v.p.activation, steps.gamma(v.gamma, c) * xhat + steps.beta(v.beta, c));
}

// Writes y, and of a group's first element the statistics too.
template <class T, class Steps>
__device__ void write(const View<T>& v, const Steps& steps, long long index, const Normaliser& s) {
  v.y[index] = from_float<T>(output(v, steps, index, s));
  if (v.is_first(index)) steps.store_statistics(v, v.group(index), s);
}

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    write(v, Steps{}, index, statistics_of(v, Steps{}, v.group(index)));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Forward, View, Cheat>(p, t, workspace, stream);
}

// Three floats a group.
inline std::size_t statistics_bytes(const Problem& p) { return std::size_t{3} * p.n * p.g * sizeof(float); }

}  // namespace ladder::groupnorm::forward_wrong
