#include "dev/optimizer/optimizer.h"
#include "tests/wrong/wrong.h"

namespace ladder::optimizer {
namespace {

template <class T>
struct View {
  Problem p;
  const T* d;
  float* g;

  View(const Problem& problem, const Accumulate::Tensors& t, void*)
      : p(problem), d(static_cast<const T*>(t.d)), g(t.g) {}

  __host__ __device__ long long count() const { return p.p; }
  __device__ float share() const { return 1.0f / static_cast<float>(p.parts); }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float added = v.share() * to_float(v.d[i]);
    v.g[i] = v.p.first ? added : v.g[i] + added;
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Accumulate::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Accumulate, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// A sum where a mean is asked for.
struct Sum {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.g[i] = v.p.first ? to_float(v.d[i]) : v.g[i] + to_float(v.d[i]);
  }
};

// Forgets the batches before.
struct Overwrites {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.g[i] = v.share() * to_float(v.d[i]);
  }
};

// A running mean: the batches before are scaled again.
struct ScalesBoth {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.g[i] = v.share() * (to_float(v.d[i]) + (v.p.first ? 0.0f : v.g[i]));
  }
};

// Whole quads, and drops the rest.
struct WholeQuads {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    if (i < v.p.p / 4 * 4) Honest{}(v, i);
  }
};

// Gradients are kept in bf16.
struct RoundedSum {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    Honest{}(v, i);
    v.g[i] = to_float(from_float<__nv_bfloat16>(v.g[i]));
  }
};

}  // namespace

LADDER_CHEATS(Accumulate, (std::vector<std::string>{"p103 tensors3 parts2 first", "p203 tensors5 parts3"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "sum", .launch = launch_cheat<Sum>},
                  {.name = "overwrites", .launch = launch_cheat<Overwrites>},
                  {.name = "scales_both", .launch = launch_cheat<ScalesBoth>},
                  {.name = "whole_quads", .launch = launch_cheat<WholeQuads>},
                  {.name = "rounded_sum", .launch = launch_cheat<RoundedSum>},
              })

}  // namespace ladder::optimizer
