#include "dev/diffusion/diffusion.h"
#include "tests/wrong/wrong.h"

namespace ladder::diffusion {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* eps;
  const float* noise;
  const Step* table;
  const std::int32_t* step;
  float* x;
  T* y;

  View(const Problem& problem, const DdpmStep::Tensors& t, void*)
      : p(problem),
        total(problem.elements()),
        eps(static_cast<const T*>(t.eps)),
        noise(t.noise),
        table(t.table),
        step(t.step),
        x(t.x),
        y(static_cast<T*>(t.y)) {}

  __host__ __device__ long long count() const { return total; }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[*v.step];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float noise = v.noise[i];
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.sigma * noise;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const DdpmStep::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<DdpmStep, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// x0 as it comes.
struct Unclamped {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[*v.step];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float noise = v.noise[i];
    const float x0 = s.x_scale * x - s.eps_scale * eps;
    const float next = s.x0_weight * x0 + s.x_weight * x + s.sigma * noise;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

// The variance where its root belongs.
struct VarianceForDeviation {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[*v.step];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float noise = v.noise[i];
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.sigma * s.sigma * noise;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

// A sampler that stopped being random.
struct NoNoise {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[*v.step];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float noise = v.noise[i];
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + 0.0f * noise;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

// The table's first row, whatever the counter says: what a captured graph would freeze.
struct FirstStep {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[0];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float noise = v.noise[i];
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.sigma * noise;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

// One row further.
struct NextStep {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[(*v.step + 1) % v.p.steps];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float noise = v.noise[i];
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.sigma * noise;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

// The predicted image itself.
struct ReturnsX0 {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[*v.step];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = x0;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

// Weights of x0 and x exchanged.
struct NoiseAlone {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[*v.step];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float noise = v.noise[i];
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x_weight * x0 + s.x0_weight * x + s.sigma * noise;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

}  // namespace

LADDER_CHEATS(DdpmStep,
              (std::vector<std::string>{"n2 h4 w4 c3", "n2 h4 w4 c3 cosine large", "n3 h3 w5 c1 steps25",
                                        "n3 h5 w5 c1 steps9"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "unclamped", .launch = launch_cheat<Unclamped>},
                  {.name = "variance_for_deviation", .launch = launch_cheat<VarianceForDeviation>},
                  {.name = "no_noise", .launch = launch_cheat<NoNoise>},
                  {.name = "first_step", .launch = launch_cheat<FirstStep>},
                  {.name = "next_step", .launch = launch_cheat<NextStep>},
                  {.name = "returns_x0", .launch = launch_cheat<ReturnsX0>},
                  {.name = "noise_alone", .launch = launch_cheat<NoiseAlone>},
              })

}  // namespace ladder::diffusion
