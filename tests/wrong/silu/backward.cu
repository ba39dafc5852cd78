#include <cmath>

#include "dev/silu/silu.h"
#include "tests/wrong/wrong.h"

namespace ladder::silu {
namespace {

// Another function of x and dy in dx.
template <class Function>
struct Each {
  __device__ void operator()(const auto& v, long long i) const {
    v.store(v.t.dx, i, Function{}(v.load(v.t.x, i), v.load(v.t.dy, i)));
  }
};

template <class Function>
constexpr auto on_output = wrong::spoiled_output<Backward, &Problem::elements, Each<Function>>;

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ float derivative(float x) { return sigmoid(x) + x * sigmoid(x) * (1.0f - sigmoid(x)); }

// The first term alone.
struct Sigmoid {
  __device__ float operator()(float x, float dy) const { return dy * sigmoid(x); }
};

// s (1 - s).
struct SigmoidsDerivative {
  __device__ float operator()(float x, float dy) const { return dy * sigmoid(x) * (1.0f - sigmoid(x)); }
};

// silu itself.
struct Value {
  __device__ float operator()(float x, float dy) const { return dy * x * sigmoid(x); }
};

// The derivative alone.
struct WithoutDy {
  __device__ float operator()(float x, float) const { return derivative(x); }
};

// Taken at dy.
struct AtTheGradient {
  __device__ float operator()(float x, float dy) const { return x * derivative(dy); }
};

}  // namespace

LADDER_CHEATS(Backward, (std::vector<std::string>{"n5 c12", "n7 c33"}),
              {
                  wrong::honest<Backward>(),
                  on_output<Sigmoid>("sigmoid"),
                  on_output<SigmoidsDerivative>("sigmoids_derivative"),
                  on_output<Value>("value"),
                  on_output<WithoutDy>("without_dy"),
                  on_output<AtTheGradient>("at_the_gradient"),
              })

}  // namespace ladder::silu
