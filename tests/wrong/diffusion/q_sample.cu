#include "dev/diffusion/gaussian.h"
#include "tests/wrong/wrong.h"

namespace ladder::diffusion {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* x0;
  const std::int32_t* t;
  const Diffused* table;
  const std::int64_t* philox;
  T* x_t;
  float* noise;

  View(const Problem& problem, const QSample::Tensors& t, void*)
      : p(problem),
        total(problem.elements()),
        x0(static_cast<const T*>(t.x0)),
        t(t.t),
        table(t.table),
        philox(t.philox),
        x_t(static_cast<T*>(t.x_t)),
        noise(t.noise) {}

  __host__ __device__ long long count() const { return total; }
  __device__ long long image() const { return static_cast<long long>(p.h) * p.w * p.c; }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Diffused at = v.table[v.t[i / v.image()]];
    const float noise = component(normals(v.philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4));
    v.noise[i] = noise;
    v.x_t[i] = from_float<T>(at.signal * to_float(v.x0[i]) + at.noise * noise);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const QSample::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<QSample, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// More noise at the beginning, less at the end.
struct WeightsExchanged {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Diffused at = v.table[v.t[i / v.image()]];
    const float noise = component(normals(v.philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4));
    v.noise[i] = noise;
    v.x_t[i] = from_float<T>(at.noise * to_float(v.x0[i]) + at.signal * noise);
  }
};

// The first image's for all.
struct OneTimeStep {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Diffused at = v.table[v.t[0]];
    const float noise = component(normals(v.philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4));
    v.noise[i] = noise;
    v.x_t[i] = from_float<T>(at.signal * to_float(v.x0[i]) + at.noise * noise);
  }
};

// One late: t counts from 1.
struct NextTimeStep {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const int late = v.t[i / v.image()] + 1 < kTimesteps ? v.t[i / v.image()] + 1 : kTimesteps - 1;
    const Diffused at = v.table[late];
    const float noise = component(normals(v.philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4));
    v.noise[i] = noise;
    v.x_t[i] = from_float<T>(at.signal * to_float(v.x0[i]) + at.noise * noise);
  }
};

// Weights without their roots.
struct Variances {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Diffused at = v.table[v.t[i / v.image()]];
    const float noise = component(normals(v.philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4));
    v.noise[i] = noise;
    v.x_t[i] = from_float<T>(at.signal * at.signal * to_float(v.x0[i]) + at.noise * at.noise * noise);
  }
};

// Stores the noise as it was added.
struct ScaledNoise {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Diffused at = v.table[v.t[i / v.image()]];
    const float noise = component(normals(v.philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4));
    v.noise[i] = at.noise * noise;
    v.x_t[i] = from_float<T>(at.signal * to_float(v.x0[i]) + at.noise * noise);
  }
};

// Trains on noise that it did not add.
struct OtherNoise {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Diffused at = v.table[v.t[i / v.image()]];
    const float noise = component(normals(v.philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4));
    v.noise[i] = component(normals(v.philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4 ^ 1));
    v.x_t[i] = from_float<T>(at.signal * to_float(v.x0[i]) + at.noise * noise);
  }
};

}  // namespace

LADDER_CHEATS(QSample, (std::vector<std::string>{"n3 h4 w4 c3", "n4 h3 w5 c1 cosine"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "weights_exchanged", .launch = launch_cheat<WeightsExchanged>},
                  {.name = "one_time_step", .launch = launch_cheat<OneTimeStep>},
                  {.name = "next_time_step", .launch = launch_cheat<NextTimeStep>},
                  {.name = "variances", .launch = launch_cheat<Variances>},
                  {.name = "scaled_noise", .launch = launch_cheat<ScaledNoise>},
                  {.name = "other_noise", .launch = launch_cheat<OtherNoise>},
              })

}  // namespace ladder::diffusion
