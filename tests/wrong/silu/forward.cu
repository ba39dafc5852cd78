#include <cmath>

#include "dev/silu/silu.h"
#include "tests/wrong/wrong.h"

namespace ladder::silu {
namespace {

// Another function of x in y.
template <class Function>
struct Each {
  __device__ void operator()(const auto& v, long long i) const { v.store(v.t.y, i, Function{}(v.load(v.t.x, i))); }
};

template <class Function>
constexpr auto on_output = wrong::spoiled_output<Forward, &Problem::elements, Each<Function>>;

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The sigmoid without x.
struct Sigmoid {
  __device__ float operator()(float x) const { return sigmoid(x); }
};

// Zero below zero.
struct Relu {
  __device__ float operator()(float x) const { return fmaxf(x, 0.0f); }
};

// Its neighbour, x sigmoid(1.702 x).
struct Gelu {
  __device__ float operator()(float x) const { return x * sigmoid(1.702f * x); }
};

// Piecewise: x (x + 3) / 6 between -3 and 3.
struct Hard {
  __device__ float operator()(float x) const { return x * fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) / 6.0f; }
};

// A sigmoid of eight bits.
struct CoarseSigmoid {
  __device__ float operator()(float x) const { return x * (rintf(sigmoid(x) * 256.0f) / 256.0f); }
};

// 1 / (1 + e^x).
struct InverseSign {
  __device__ float operator()(float x) const { return x * sigmoid(-x); }
};

}  // namespace

LADDER_CHEATS(Forward, (std::vector<std::string>{"n5 c12", "n7 c33"}),
              {
                  wrong::honest<Forward>(),
                  on_output<Sigmoid>("sigmoid"),
                  on_output<Relu>("relu"),
                  on_output<Gelu>("gelu"),
                  on_output<Hard>("hard"),
                  on_output<CoarseSigmoid>("coarse_sigmoid"),
                  on_output<InverseSign>("inverse_sign"),
              })

}  // namespace ladder::silu
