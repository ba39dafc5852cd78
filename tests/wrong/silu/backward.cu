#include <cmath>

#include "dev/silu/silu.h"
#include "tests/wrong/wrong.h"

namespace ladder::silu {
namespace {

enum class Fault {
  none,
  sigmoid,              // the first term alone
  sigmoids_derivative,  // s (1 - s)
  value,                // silu itself
  without_dy,           // the derivative alone
  at_the_gradient,      // taken at dy
};

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ float derivative(float x) { return sigmoid(x) + x * sigmoid(x) * (1.0f - sigmoid(x)); }

__device__ float gradient(Fault fault, float x, float dy) {
  if (fault == Fault::sigmoid) return dy * sigmoid(x);
  if (fault == Fault::sigmoids_derivative) return dy * sigmoid(x) * (1.0f - sigmoid(x));
  if (fault == Fault::value) return dy * x * sigmoid(x);
  if (fault == Fault::without_dy) return derivative(x);
  return fault == Fault::at_the_gradient ? x * derivative(dy) : dy * derivative(x);
}

template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long i) const {
    v.store(v.t.dx, i, gradient(kFault, v.load(v.t.x, i), v.load(v.t.dy, i)));
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Backward, &Problem::elements, Faulty<kFault>>;

}  // namespace

LADDER_CHEATS(Backward, (std::vector<std::string>{"n5 c12", "n7 c33"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::sigmoid>("sigmoid"),
                  faulty<Fault::sigmoids_derivative>("sigmoids_derivative"),
                  faulty<Fault::value>("value"),
                  faulty<Fault::without_dy>("without_dy"),
                  faulty<Fault::at_the_gradient>("at_the_gradient"),
              })

}  // namespace ladder::silu
