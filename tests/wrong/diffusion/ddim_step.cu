#include "tests/wrong/diffusion/sampler.h"

namespace ladder::diffusion {
namespace {

// Forgets the direction back to x.
struct NoDirection {
  __device__ void operator()(StepCoefficients& s) const { s.pred_weight = 0.0f; }
};

// Noise where the direction belongs.
struct NoiseInPlaceOfEps {
  __device__ void operator()(StepCoefficients& s) const { exchange(s.pred_weight, s.sigma); }
};

}  // namespace

LADDER_CHEATS(DdimStep,
              (std::vector<std::string>{"n2 h4 w4 c3 steps1 eta100", "n2 h4 w4 c3 eta100", "n2 h4 w4 c3 cosine eta50",
                                        "n3 h3 w5 c1 steps25 eta100", "n2 h4 w4 c3 steps9 clipped-eps eta80",
                                        "n2 h4 w4 c3"}),
              {
                  wrong::honest<DdimStep>(),
                  on_table<DdimStep, EachRow<Unclamped>>("unclamped"),
                  on_table<DdimStep, EachRow<VarianceForDeviation>>("variance_for_deviation"),
                  on_table<DdimStep, EachRow<NoNoise>>("no_noise"),
                  on_table<DdimStep, FirstStep>("first_step"),
                  on_table<DdimStep, NextStep>("next_step"),
                  on_table<DdimStep, NextStepsWeights>("next_steps_weights"),
                  on_table<DdimStep, NoiseAtTheEnd>("noise_at_the_end"),
                  on_table<DdimStep, EachRow<ReturnsX0>>("returns_x0"),
                  on_table<DdimStep, EachRow<NoDirection>>("no_direction"),
                  on_table<DdimStep, EachRow<NoiseInPlaceOfEps>>("noise_in_place_of_eps"),
              })

}  // namespace ladder::diffusion
