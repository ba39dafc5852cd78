#include "dev/silu/silu.h"
#include "tests/wrong/wrong.h"

#include <cmath>

namespace ladder::silu {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* x;
  T* y;

  View(const Problem& problem, const Forward::Tensors& t, void*)
      : p(problem), total(problem.elements()), x(static_cast<const T*>(t.x)), y(static_cast<T*>(t.y)) {}

  __host__ __device__ long long count() const { return total; }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    const float s = 1.0f / (1.0f + expf(-x));
    v.y[i] = from_float<T>(x * s);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Forward, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The sigmoid without x.
struct Sigmoid {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    const float s = 1.0f / (1.0f + expf(-x));
    v.y[i] = from_float<T>(s);
  }
};

// Zero below zero.
struct Relu {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    v.y[i] = from_float<T>(fmaxf(x, 0.0f));
  }
};

// Its neighbour, x sigmoid(1.702 x).
struct Gelu {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    v.y[i] = from_float<T>(x / (1.0f + expf(-1.702f * x)));
  }
};

// Piecewise: x (x + 3) / 6 between -3 and 3.
struct Hard {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    v.y[i] = from_float<T>(x * fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) / 6.0f);
  }
};

// A sigmoid of eight bits.
struct CoarseSigmoid {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    const float s = 1.0f / (1.0f + expf(-x));
    v.y[i] = from_float<T>(x * (rintf(s * 256.0f) / 256.0f));
  }
};

// 1 / (1 + e^x).
struct InverseSign {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    v.y[i] = from_float<T>(x / (1.0f + expf(x)));
  }
};

}  // namespace

LADDER_CHEATS(Forward, (std::vector<std::string>{"n5 c12", "n7 c33"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "sigmoid", .launch = launch_cheat<Sigmoid>},
                  {.name = "relu", .launch = launch_cheat<Relu>},
                  {.name = "gelu", .launch = launch_cheat<Gelu>},
                  {.name = "hard", .launch = launch_cheat<Hard>},
                  {.name = "coarse_sigmoid", .launch = launch_cheat<CoarseSigmoid>},
                  {.name = "inverse_sign", .launch = launch_cheat<InverseSign>},
              })

}  // namespace ladder::silu
