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
  const T* dy;
  T* dx;

  View(const Problem& problem, const Backward::Tensors& t, void*)
      : p(problem),
        total(problem.elements()),
        x(static_cast<const T*>(t.x)),
        dy(static_cast<const T*>(t.dy)),
        dx(static_cast<T*>(t.dx)) {}

  __host__ __device__ long long count() const { return total; }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    const float dy = to_float(v.dy[i]);
    const float s = 1.0f / (1.0f + expf(-x));
    v.dx[i] = from_float<T>(dy * (s + x * s * (1.0f - s)));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Backward, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The first term alone.
struct Sigmoid {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    const float dy = to_float(v.dy[i]);
    const float s = 1.0f / (1.0f + expf(-x));
    v.dx[i] = from_float<T>(dy * s);
  }
};

// s (1 - s).
struct SigmoidsDerivative {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    const float dy = to_float(v.dy[i]);
    const float s = 1.0f / (1.0f + expf(-x));
    v.dx[i] = from_float<T>(dy * s * (1.0f - s));
  }
};

// silu itself.
struct Value {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    const float dy = to_float(v.dy[i]);
    const float s = 1.0f / (1.0f + expf(-x));
    v.dx[i] = from_float<T>(dy * x * s);
  }
};

// The derivative alone.
struct WithoutDy {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    const float s = 1.0f / (1.0f + expf(-x));
    v.dx[i] = from_float<T>(s + x * s * (1.0f - s));
  }
};

// Taken at dy.
struct AtTheGradient {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const float x = to_float(v.x[i]);
    const float dy = to_float(v.dy[i]);
    const float s = 1.0f / (1.0f + expf(-dy));
    v.dx[i] = from_float<T>(x * (s + dy * s * (1.0f - s)));
  }
};

}  // namespace

LADDER_CHEATS(Backward, (std::vector<std::string>{"n5 c12", "n7 c33"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "sigmoid", .launch = launch_cheat<Sigmoid>},
                  {.name = "sigmoids_derivative", .launch = launch_cheat<SigmoidsDerivative>},
                  {.name = "value", .launch = launch_cheat<Value>},
                  {.name = "without_dy", .launch = launch_cheat<WithoutDy>},
                  {.name = "at_the_gradient", .launch = launch_cheat<AtTheGradient>},
              })

}  // namespace ladder::silu
