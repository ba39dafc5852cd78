#include <cmath>

#include "dev/optimizer/update.h"
#include "tests/wrong/wrong.h"

namespace ladder::optimizer {
namespace {

// Another norm, and the scale that comes of it.
template <class OtherNorm>
struct Finish {
  __device__ void operator()(const auto& v, long long) const {
    const float norm = OtherNorm{}(v.t.g, v.p.p, *v.t.norm);
    finish_norm(norm * norm, v.p.clip, *v.t.hyper, v.t.norm, v.t.scale);
  }
};

constexpr int one(const Problem&) { return 1; }

template <class Cheat>
constexpr auto on_output = wrong::spoiled_output<Norm, one, Cheat>;

// The sum of squares.
struct Squared {
  __device__ float operator()(const float*, long long, float norm) const { return norm * norm; }
};

// The sum of absolute values.
struct Absolute {
  __device__ float operator()(const float* g, long long count, float) const {
    float sum = 0;
    for (long long i = 0; i < count; ++i) sum += fabsf(g[i]);
    return sum;
  }
};

// Divided by the number of parameters.
struct RootMeanSquare {
  __device__ float operator()(const float*, long long count, float norm) const {
    return norm / sqrtf(static_cast<float>(count));
  }
};

// The largest of all: clipping by value.
struct Largest {
  __device__ float operator()(const float* g, long long count, float) const {
    float most = 0;
    for (long long i = 0; i < count; ++i) most = fmaxf(most, fabsf(g[i]));
    return most;
  }
};

// Whole vectors of eight, and drops the rest.
void whole_vectors(Problem& p) { p.p = (p.p - 1) / 8 * 8; }

// The inverse scale.
struct NormOverMaximum {
  __device__ void operator()(const auto& v, long long) const {
    if (v.p.clip) *v.t.scale = *v.t.norm / v.t.hyper->max_norm;
  }
};

// Scales without being told to.
void clips_always(Problem& p) { p.clip = true; }

}  // namespace

LADDER_CHEATS(Norm, (std::vector<std::string>{"p100 tensors3 clip", "p203 tensors5"}),
              {
                  wrong::honest<Norm>(),
                  on_output<Finish<Squared>>("squared"),
                  on_output<Finish<Absolute>>("absolute"),
                  on_output<Finish<RootMeanSquare>>("root_mean_square"),
                  on_output<Finish<Largest>>("largest"),
                  wrong::spoiled_problem<Norm, whole_vectors>("whole_vectors"),
                  on_output<NormOverMaximum>("norm_over_maximum"),
                  wrong::spoiled_problem<Norm, clips_always>("clips_always"),
              })

}  // namespace ladder::optimizer
