#include <cmath>

#include "dev/silu/silu.h"
#include "tests/wrong/wrong.h"

namespace ladder::silu {
namespace {

enum class Fault {
  none,
  sigmoid,         // without x
  relu,            // zero below zero
  gelu,            // its neighbour, x sigmoid(1.702 x)
  hard,            // piecewise: x (x + 3) / 6 between -3 and 3
  coarse_sigmoid,  // a sigmoid of eight bits
  inverse_sign,    // 1 / (1 + e^x)
  tame,            // wrong beyond 12, which N(0, 4) seldom reaches
};

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ float value(Fault fault, float x) {
  if (fault == Fault::sigmoid) return sigmoid(x);
  if (fault == Fault::relu) return fmaxf(x, 0.0f);
  if (fault == Fault::gelu) return x * sigmoid(1.702f * x);
  if (fault == Fault::hard) return x * fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) / 6.0f;
  if (fault == Fault::coarse_sigmoid) return x * (rintf(sigmoid(x) * 256.0f) / 256.0f);
  if (fault == Fault::tame && fabsf(x) > 12.0f) return 12.0f;
  return x * sigmoid(fault == Fault::inverse_sign ? -x : x);
}

template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long i) const { v.store(v.t.y, i, value(kFault, v.load(v.t.x, i))); }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Forward, &Problem::elements, Faulty<kFault>>;

}  // namespace

LADDER_CHEATS(Forward, (std::vector<std::string>{"n5 c12", "n7 c33"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::sigmoid>("sigmoid"),
                  faulty<Fault::relu>("relu"),
                  faulty<Fault::gelu>("gelu"),
                  faulty<Fault::hard>("hard"),
                  faulty<Fault::coarse_sigmoid>("coarse_sigmoid"),
                  faulty<Fault::inverse_sign>("inverse_sign"),
                  faulty<Fault::tame>("tame"),
              })

}  // namespace ladder::silu
