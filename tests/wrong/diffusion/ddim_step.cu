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

  View(const Problem& problem, const DdimStep::Tensors& t, void*)
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
    const float noise = v.noise ? v.noise[i] : 0.0f;
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.eps_weight * eps + s.sigma * noise;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const DdimStep::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<DdimStep, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// x0 as it comes.
struct Unclamped {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[*v.step];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float noise = v.noise ? v.noise[i] : 0.0f;
    const float x0 = s.x_scale * x - s.eps_scale * eps;
    const float next = s.x0_weight * x0 + s.x_weight * x + s.eps_weight * eps + s.sigma * noise;
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
    const float noise = v.noise ? v.noise[i] : 0.0f;
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.eps_weight * eps + s.sigma * s.sigma * noise;
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
    const float noise = v.noise ? v.noise[i] : 0.0f;
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.eps_weight * eps + 0.0f * noise;
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
    const float noise = v.noise ? v.noise[i] : 0.0f;
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.eps_weight * eps + s.sigma * noise;
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
    const float noise = v.noise ? v.noise[i] : 0.0f;
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.eps_weight * eps + s.sigma * noise;
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

// Forgets the direction back to x.
struct NoDirection {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[*v.step];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float noise = v.noise ? v.noise[i] : 0.0f;
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.sigma * noise;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

// Noise where the direction belongs.
struct NoiseInPlaceOfEps {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Step s = v.table[*v.step];
    const float x = v.x[i];
    const float eps = to_float(v.eps[i]);
    const float noise = v.noise ? v.noise[i] : 0.0f;
    const float x0 = fminf(fmaxf(s.x_scale * x - s.eps_scale * eps, -s.clip), s.clip);
    const float next = s.x0_weight * x0 + s.x_weight * x + s.eps_weight * noise + s.sigma * eps;
    v.x[i] = next;
    if (v.y) v.y[i] = from_float<T>(next);
  }
};

}  // namespace

LADDER_CHEATS(DdimStep,
              (std::vector<std::string>{"n2 h4 w4 c3 eta100", "n2 h4 w4 c3 cosine eta50", "n3 h3 w5 c1 steps25 eta100",
                                        "n2 h4 w4 c3 steps9 clipped-eps eta80", "n2 h4 w4 c3"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "unclamped", .launch = launch_cheat<Unclamped>},
                  {.name = "variance_for_deviation", .launch = launch_cheat<VarianceForDeviation>},
                  {.name = "no_noise", .launch = launch_cheat<NoNoise>},
                  {.name = "first_step", .launch = launch_cheat<FirstStep>},
                  {.name = "next_step", .launch = launch_cheat<NextStep>},
                  {.name = "returns_x0", .launch = launch_cheat<ReturnsX0>},
                  {.name = "no_direction", .launch = launch_cheat<NoDirection>},
                  {.name = "noise_in_place_of_eps", .launch = launch_cheat<NoiseInPlaceOfEps>},
              })

}  // namespace ladder::diffusion
