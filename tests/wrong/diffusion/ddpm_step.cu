#include "tests/wrong/diffusion/sampler.h"

namespace ladder::diffusion {
namespace {

// Weights of x0 and x exchanged.
struct NoiseAlone {
  __device__ void operator()(StepCoefficients& s) const { exchange(s.x0_weight, s.x_weight); }
};

}  // namespace

LADDER_CHEATS(DdpmStep,
              (std::vector<std::string>{"n2 h4 w4 c3 steps1", "n2 h4 w4 c3", "n2 h4 w4 c3 cosine large",
                                        "n3 h3 w5 c1 steps25", "n3 h5 w5 c1 steps9"}),
              {
                  wrong::honest<DdpmStep>(),
                  on_table<DdpmStep, EachRow<Unclamped>>("unclamped"),
                  on_table<DdpmStep, EachRow<VarianceForDeviation>>("variance_for_deviation"),
                  on_table<DdpmStep, EachRow<NoNoise>>("no_noise"),
                  on_table<DdpmStep, FirstStep>("first_step"),
                  on_table<DdpmStep, NextStep>("next_step"),
                  on_table<DdpmStep, NextStepsWeights>("next_steps_weights"),
                  on_table<DdpmStep, NoiseAtTheEnd>("noise_at_the_end"),
                  on_table<DdpmStep, EachRow<ReturnsX0>>("returns_x0"),
                  on_table<DdpmStep, EachRow<NoiseAlone>>("noise_alone"),
              })

}  // namespace ladder::diffusion
