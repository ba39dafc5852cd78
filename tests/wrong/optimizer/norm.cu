#include "dev/optimizer/optimizer.h"
#include "tests/wrong/wrong.h"

#include <cmath>

namespace ladder::optimizer {
namespace {

template <class T>
struct View {
  Problem p;
  const float* g;
  const Hyper* hyper;
  float* norm;
  float* scale;

  View(const Problem& problem, const Norm::Tensors& t, void*)
      : p(problem), g(t.g), hyper(t.hyper), norm(t.norm), scale(t.scale) {}

  __host__ __device__ long long count() const { return 1; }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    if (i != 0) return;
    float sum = 0;
    for (long long j = 0; j < v.p.p; ++j) sum += v.g[j] * v.g[j];
    const float norm = sqrtf(sum);
    *v.norm = norm;
    *v.scale = v.p.clip ? fminf(1.0f, v.hyper->max_norm / (norm + 1e-6f)) : 1.0f;
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Norm::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Norm, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The sum of squares.
struct Squared {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    if (i != 0) return;
    float sum = 0;
    for (long long j = 0; j < v.p.p; ++j) sum += v.g[j] * v.g[j];
    const float norm = sum;
    *v.norm = norm;
    *v.scale = v.p.clip ? fminf(1.0f, v.hyper->max_norm / (norm + 1e-6f)) : 1.0f;
  }
};

// The sum of absolute values.
struct Absolute {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    if (i != 0) return;
    float sum = 0;
    for (long long j = 0; j < v.p.p; ++j) sum += fabsf(v.g[j]);
    const float norm = sum;
    *v.norm = norm;
    *v.scale = v.p.clip ? fminf(1.0f, v.hyper->max_norm / (norm + 1e-6f)) : 1.0f;
  }
};

// Divided by the number of parameters.
struct RootMeanSquare {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    if (i != 0) return;
    float sum = 0;
    for (long long j = 0; j < v.p.p; ++j) sum += v.g[j] * v.g[j];
    const float norm = sqrtf(sum / static_cast<float>(v.p.p));
    *v.norm = norm;
    *v.scale = v.p.clip ? fminf(1.0f, v.hyper->max_norm / (norm + 1e-6f)) : 1.0f;
  }
};

// The largest of all: clipping by value.
struct Largest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    if (i != 0) return;
    float sum = 0;
    for (long long j = 0; j < v.p.p; ++j) sum += fmaxf(fabsf(v.g[j]) - sum, 0.0f);
    const float norm = sum;
    *v.norm = norm;
    *v.scale = v.p.clip ? fminf(1.0f, v.hyper->max_norm / (norm + 1e-6f)) : 1.0f;
  }
};

// Whole vectors of eight, and drops the rest.
struct WholeVectors {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    if (i != 0) return;
    float sum = 0;
    for (long long j = 0; j < (v.p.p - 1) / 8 * 8; ++j) sum += v.g[j] * v.g[j];
    const float norm = sqrtf(sum);
    *v.norm = norm;
    *v.scale = v.p.clip ? fminf(1.0f, v.hyper->max_norm / (norm + 1e-6f)) : 1.0f;
  }
};

// The inverse scale.
struct NormOverMaximum {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    if (i != 0) return;
    float sum = 0;
    for (long long j = 0; j < v.p.p; ++j) sum += v.g[j] * v.g[j];
    const float norm = sqrtf(sum);
    *v.norm = norm;
    *v.scale = v.p.clip ? norm / v.hyper->max_norm : 1.0f;
  }
};

// Scales without being told to.
struct ClipsAlways {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    if (i != 0) return;
    float sum = 0;
    for (long long j = 0; j < v.p.p; ++j) sum += v.g[j] * v.g[j];
    const float norm = sqrtf(sum);
    *v.norm = norm;
    *v.scale =
        v.p.clip ? fminf(1.0f, v.hyper->max_norm / (norm + 1e-6f)) : fminf(1.0f, v.hyper->max_norm / (norm + 1e-6f));
  }
};

}  // namespace

LADDER_CHEATS(Norm, (std::vector<std::string>{"p100 tensors3 clip", "p203 tensors5"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "squared", .launch = launch_cheat<Squared>},
                  {.name = "absolute", .launch = launch_cheat<Absolute>},
                  {.name = "root_mean_square", .launch = launch_cheat<RootMeanSquare>},
                  {.name = "largest", .launch = launch_cheat<Largest>},
                  {.name = "whole_vectors", .launch = launch_cheat<WholeVectors>},
                  {.name = "norm_over_maximum", .launch = launch_cheat<NormOverMaximum>},
                  {.name = "clips_always", .launch = launch_cheat<ClipsAlways>},
              })

}  // namespace ladder::optimizer
