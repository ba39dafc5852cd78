// The cheats of both samplers. The honest version takes a table in which each row is spoiled, so that a fault is one of
// the formula's coefficients.
#pragma once

#include <cmath>

#include "dev/diffusion/diffusion.h"
#include "tests/wrong/wrong.h"

namespace ladder::diffusion {

template <class P, class Cheat>
constexpr auto on_table = wrong::spoiled_input<P, &P::Tensors::table, &Problem::steps, Cheat>;

// Rows of the honest table, each changed by itself.
template <class Change>
struct EachRow {
  __device__ StepCoefficients operator()(const auto& v, long long row) const {
    StepCoefficients s = v.t.table[row];
    Change{}(s);
    return s;
  }
};

__device__ inline void exchange(float& a, float& b) {
  const float kept = a;
  a = b;
  b = kept;
}

// x0 as it comes.
struct Unclamped {
  __device__ void operator()(StepCoefficients& s) const { s.clip = INFINITY; }
};

// The variance where its root belongs.
struct VarianceForDeviation {
  __device__ void operator()(StepCoefficients& s) const { s.sigma *= s.sigma; }
};

// A sampler that stopped being random.
struct NoNoise {
  __device__ void operator()(StepCoefficients& s) const { s.sigma = 0.0f; }
};

// The predicted image itself.
struct ReturnsX0 {
  __device__ void operator()(StepCoefficients& s) const {
    s.x0_weight = 1.0f;
    s.x_weight = s.pred_weight = s.sigma = 0.0f;
  }
};

// The table's first row, whatever the counter says: what a captured graph would freeze.
struct FirstStep {
  __device__ StepCoefficients operator()(const auto& v, long long) const { return v.t.table[0]; }
};

// Noise after the last step, where there is none.
struct NoiseAtTheEnd {
  __device__ StepCoefficients operator()(const auto& v, long long row) const {
    StepCoefficients s = v.t.table[row];
    if (row + 1 == v.p.steps) s.sigma = 0.1f;
    return s;
  }
};

// The right x0, and the way back to x of another time step.
struct NextStepsWeights {
  __device__ StepCoefficients operator()(const auto& v, long long row) const {
    const StepCoefficients& current = v.t.table[row];
    StepCoefficients s = v.t.table[(row + 1) % v.p.steps];
    s.x_scale = current.x_scale;
    s.pred_scale = current.pred_scale;
    s.x0_scale = current.x0_scale;
    return s;
  }
};

// One row further.
struct NextStep {
  __device__ StepCoefficients operator()(const auto& v, long long row) const {
    return v.t.table[(row + 1) % v.p.steps];
  }
};

}  // namespace ladder::diffusion
