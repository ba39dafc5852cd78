#include "dev/embedding/embedding.h"
#include "tests/wrong/wrong.h"

#include <cmath>

namespace ladder::embedding {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const void* t;
  T* y;

  View(const Problem& problem, const Timestep::Tensors& t, void*)
      : p(problem), total(problem.elements()), t(t.t), y(static_cast<T*>(t.y)) {}

  __host__ __device__ long long count() const { return total; }

  __device__ float time(long long n) const {
    return p.real ? static_cast<const float*>(t)[n] : static_cast<float>(static_cast<const int*>(t)[n]);
  }
  __device__ long long image(long long i) const { return i / p.c; }
  __device__ int channel(long long i) const { return static_cast<int>(i % p.c); }
  __device__ float angle(long long n, int j) const {
    const float half = static_cast<float>(p.c / 2);
    return time(n) * expf(-9.210340371976182f * static_cast<float>(j) / half);
  }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const int half = v.p.c / 2;
    const int j = v.channel(i);
    float value = 0.0f;
    if (j < half) {
      value = cosf(v.angle(v.image(i), j));
    } else if (j < 2 * half) {
      value = sinf(v.angle(v.image(i), j - half));
    }
    v.y[i] = from_float<T>(value);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Timestep::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Timestep, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// Sines, then cosines, as other models have them.
struct SineFirst {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const int half = v.p.c / 2;
    const int j = v.channel(i);
    float value = 0.0f;
    if (j < half) {
      value = sinf(v.angle(v.image(i), j));
    } else if (j < 2 * half) {
      value = cosf(v.angle(v.image(i), j - half));
    }
    v.y[i] = from_float<T>(value);
  }
};

// Cosine and sine of each frequency side by side.
struct Interleaved {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const int half = v.p.c / 2;
    const int j = v.channel(i);
    const float angle = v.angle(v.image(i), j / 2);
    v.y[i] = from_float<T>(j >= 2 * half ? 0.0f : j % 2 == 0 ? cosf(angle) : sinf(angle));
  }
};

// A tenth of the longest period.
struct Period1000 {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const int half = v.p.c / 2;
    const int j = v.channel(i);
    const auto angle = [&](int k) {
      return v.time(v.image(i)) * expf(-6.907755279f * static_cast<float>(k) / static_cast<float>(half));
    };
    float value = 0.0f;
    if (j < half) {
      value = cosf(angle(j));
    } else if (j < 2 * half) {
      value = sinf(angle(j - half));
    }
    v.y[i] = from_float<T>(value);
  }
};

// Divides by half - 1, as the transformer's original does.
struct HalfLessOne {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const int half = v.p.c / 2;
    const int j = v.channel(i);
    const auto angle = [&](int k) {
      return v.time(v.image(i)) * expf(-9.210340371976182f * static_cast<float>(k) / static_cast<float>(half - 1));
    };
    float value = 0.0f;
    if (j < half) {
      value = cosf(angle(j));
    } else if (j < 2 * half) {
      value = sinf(angle(j - half));
    }
    v.y[i] = from_float<T>(value);
  }
};

// One time step for the whole batch.
struct FirstImage {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const int half = v.p.c / 2;
    const int j = v.channel(i);
    float value = 0.0f;
    if (j < half) {
      value = cosf(v.angle(0, j));
    } else if (j < 2 * half) {
      value = sinf(v.angle(0, j - half));
    }
    v.y[i] = from_float<T>(value);
  }
};

// Rounds the angle: 999 rad to 1000.
struct Bf16Angle {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const int half = v.p.c / 2;
    const int j = v.channel(i);
    float value = 0.0f;
    if (j < half) {
      value = cosf(to_float(from_float<__nv_bfloat16>(v.angle(v.image(i), j))));
    } else if (j < 2 * half) {
      value = sinf(to_float(from_float<__nv_bfloat16>(v.angle(v.image(i), j - half))));
    }
    v.y[i] = from_float<T>(value);
  }
};

// Time steps from 0 to 1.
struct ScaledToOne {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const int half = v.p.c / 2;
    const int j = v.channel(i);
    float value = 0.0f;
    if (j < half) {
      value = cosf(v.angle(v.image(i), j) / 1000.0f);
    } else if (j < 2 * half) {
      value = sinf(v.angle(v.image(i), j - half) / 1000.0f);
    }
    v.y[i] = from_float<T>(value);
  }
};

}  // namespace

LADDER_CHEATS(Timestep, (std::vector<std::string>{"n5 c16", "n4 c33", "n3 c20 real"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "sine_first", .launch = launch_cheat<SineFirst>},
                  {.name = "interleaved", .launch = launch_cheat<Interleaved>},
                  {.name = "period_1000", .launch = launch_cheat<Period1000>},
                  {.name = "half_less_one", .launch = launch_cheat<HalfLessOne>},
                  {.name = "first_image", .launch = launch_cheat<FirstImage>},
                  {.name = "bf16_angle", .launch = launch_cheat<Bf16Angle>},
                  {.name = "scaled_to_one", .launch = launch_cheat<ScaledToOne>},
              })

}  // namespace ladder::embedding
