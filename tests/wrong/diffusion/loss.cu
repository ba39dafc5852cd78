#include <cmath>

#include "dev/diffusion/diffusion.h"
#include "tests/wrong/wrong.h"

namespace ladder::diffusion {
namespace {

template <class Cheat>
constexpr auto on_output = wrong::spoiled_output<Loss, &Problem::elements, Cheat>;

__device__ long long image(const Problem& p) { return static_cast<long long>(p.h) * p.w * p.c; }

// The sum of squares.
struct Sum {
  __device__ void operator()(const auto& v, long long i) const {
    if (i == 0) *v.t.loss *= static_cast<float>(v.count());
  }
};

__device__ void scale_gradient(const auto& v, long long i, float factor) {
  v.store(v.t.dpred, i, factor * v.load(v.t.dpred, i));
}

// Half the gradient, as of a loss with 1/2 in front.
struct GradientOfHalf {
  __device__ void operator()(const auto& v, long long i) const { scale_gradient(v, i, 0.5f); }
};

// The gradient of an image's own mean.
struct GradientOfImages {
  __device__ void operator()(const auto& v, long long i) const { scale_gradient(v, i, static_cast<float>(v.p.n)); }
};

// noise - pred.
struct OtherSign {
  __device__ void operator()(const auto& v, long long i) const { scale_gradient(v, i, -1.0f); }
};

// The mean of absolute differences.
struct Absolute {
  __device__ static float mean(const auto& v, long long begin, long long count) {
    float sum = 0;
    for (long long j = begin; j < begin + count; ++j) sum += fabsf(v.load(v.t.pred, j) - v.t.noise[j]);
    return sum / static_cast<float>(count);
  }
  __device__ void operator()(const auto& v, long long i) const {
    if (i % image(v.p) == 0) v.t.losses[i / image(v.p)] = mean(v, i, image(v.p));
    if (i == 0) *v.t.loss = mean(v, 0, v.count());
  }
};

// An image's share of the loss for its own.
struct LossesOverAll {
  __device__ void operator()(const auto& v, long long i) const {
    if (i < v.p.n) v.t.losses[i] /= static_cast<float>(v.p.n);
  }
};

}  // namespace

LADDER_CHEATS(Loss, (std::vector<std::string>{"n2 h4 w4 c3", "n3 h3 w5 c1"}),
              {
                  wrong::honest<Loss>(),
                  on_output<Sum>("sum"),
                  on_output<GradientOfHalf>("gradient_of_half"),
                  on_output<GradientOfImages>("gradient_of_images"),
                  on_output<OtherSign>("other_sign"),
                  on_output<Absolute>("absolute"),
                  on_output<LossesOverAll>("losses_over_all"),
              })

}  // namespace ladder::diffusion
