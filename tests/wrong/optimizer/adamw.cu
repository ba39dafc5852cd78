#include <cmath>

#include "dev/optimizer/update.h"
#include "tests/wrong/wrong.h"

namespace ladder::optimizer {
namespace {

// The layer's own step of one parameter, open to a spoiled one in three places.
struct Honest {
  __device__ void spoil_terms(const Hyper&, Scalars&) const {}
  __device__ float gradient(const Hyper&, const Scalars& s, const State&, float g) const { return s.scale * g; }
  __device__ void spoil_state(const Scalars&, const State& /*before*/, float /*gradient*/, State& /*after*/) const {}
};

template <class Step>
struct Update {
  __device__ void operator()(const auto& v, long long i) const {
    const Step step{};
    const State before{.p = v.t.p[i], .m = v.t.m[i], .v = v.t.v[i], .ema = v.t.ema[i]};
    Scalars s = scalars_of(*v.t.hyper, *v.t.scale);
    step.spoil_terms(*v.t.hyper, s);
    const float g = step.gradient(*v.t.hyper, s, before, v.t.g[i]);
    s.scale = 1.0f;  // of g already
    State after = updated(s, before, g);
    step.spoil_state(s, before, g, after);
    v.t.p[i] = after.p;
    v.t.m[i] = after.m;
    v.t.v[i] = after.v;
    v.t.ema[i] = after.ema;
    if (v.t.w) v.store(v.t.w, i, after.p);
  }
};

template <class Step>
void launch_cheat(const Problem& p, const AdamW::Tensors& t, void*, Stream stream) {
  wrong::launch_each<AdamW>(p, t, stream, p.p, Update<Step>{});
}

// What can be wrong with it.

// Steps that are far too small at first.
struct NoBiasCorrection : Honest {
  __device__ void spoil_terms(const Hyper& h, Scalars& s) const {
    s.step_size = h.lr;
    s.root_factor = 1.0f;
  }
};

// Corrects the mean alone.
struct NoSecondCorrection : Honest {
  __device__ void spoil_terms(const Hyper&, Scalars& s) const { s.root_factor = 1.0f; }
};

// Counts steps from 0.
struct LateCorrection : Honest {
  __device__ void spoil_terms(Hyper h, Scalars& s) const {
    h.step += 1.0f;
    s = scalars_of(h, s.scale);
  }
};

// Forgets the decay.
struct NoDecay : Honest {
  __device__ void spoil_terms(const Hyper&, Scalars& s) const { s.decay = 1.0f; }
};

// Adds it to the gradient, as Adam does.
struct L2Decay : NoDecay {
  __device__ float gradient(const Hyper& h, const Scalars& s, const State& at, float g) const {
    return s.scale * g + h.weight_decay * at.p;
  }
};

// Decays by the same whatever the learning rate.
struct DecayWithoutRate : Honest {
  __device__ void spoil_terms(const Hyper& h, Scalars& s) const { s.decay = 1.0f - h.weight_decay; }
};

// Moves p by another quotient of the moments.
__device__ void move(const Scalars& s, const State& before, float quotient, State& after) {
  after.p = s.decay * before.p - s.step_size * quotient;
  after.ema = before.ema + s.one_minus_ema_rate * (after.p - before.ema);
}

// Adds epsilon in the root.
struct EpsilonInside : Honest {
  __device__ void spoil_state(const Scalars& s, const State& before, float, State& after) const {
    move(s, before, after.m / sqrtf(s.root_factor * s.root_factor * after.v + s.eps), after);
  }
};

// Adds it before the correction, as a faster formula does.
struct EpsilonUncorrected : Honest {
  __device__ void spoil_terms(const Hyper&, Scalars& s) const { s.eps *= s.root_factor; }
};

// Averages the parameters of the step before.
struct AverageOfOld : Honest {
  __device__ void spoil_state(const Scalars& s, const State& before, float, State& after) const {
    after.ema = before.ema + s.one_minus_ema_rate * (before.p - before.ema);
  }
};

// Cuts each gradient off instead of scaling all.
struct ClipsByValue : Honest {
  __device__ float gradient(const Hyper&, const Scalars& s, const State&, float g) const {
    return fminf(fmaxf(g, -s.scale), s.scale);
  }
};

// Ignores the scale.
struct ClipsNothing : Honest {
  __device__ float gradient(const Hyper&, const Scalars& s, const State&, float g) const {
    return s.scale > 0.0f ? g : 0.0f;
  }
};

// Looks a step ahead.
struct Nesterov : Honest {
  __device__ void spoil_state(const Scalars& s, const State& before, float g, State& after) const {
    const float ahead = after.m + s.one_minus_beta1 * (g - after.m);
    move(s, before, ahead / (s.root_factor * sqrtf(after.v) + s.eps), after);
  }
};

// Takes the moments' weights for each other.
struct RateForRest : Honest {
  __device__ void spoil_terms(const Hyper&, Scalars& s) const { s.one_minus_beta1 = 1.0f - s.one_minus_beta1; }
};

}  // namespace

LADDER_CHEATS(AdamW, (std::vector<std::string>{"p100 tensors3 clip", "p203 tensors5", "p77 tensors2 clip"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "no_bias_correction", .launch = launch_cheat<NoBiasCorrection>},
                  {.name = "no_second_correction", .launch = launch_cheat<NoSecondCorrection>},
                  {.name = "late_correction", .launch = launch_cheat<LateCorrection>},
                  {.name = "l2_decay", .launch = launch_cheat<L2Decay>},
                  {.name = "decay_without_rate", .launch = launch_cheat<DecayWithoutRate>},
                  {.name = "no_decay", .launch = launch_cheat<NoDecay>},
                  {.name = "epsilon_inside", .launch = launch_cheat<EpsilonInside>},
                  {.name = "epsilon_uncorrected", .launch = launch_cheat<EpsilonUncorrected>},
                  {.name = "average_of_old", .launch = launch_cheat<AverageOfOld>},
                  {.name = "clips_by_value", .launch = launch_cheat<ClipsByValue>},
                  {.name = "clips_nothing", .launch = launch_cheat<ClipsNothing>},
                  {.name = "nesterov", .launch = launch_cheat<Nesterov>},
                  {.name = "rate_for_rest", .launch = launch_cheat<RateForRest>},
              })

}  // namespace ladder::optimizer
