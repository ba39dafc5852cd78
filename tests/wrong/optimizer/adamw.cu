#include <cmath>

#include "dev/optimizer/update.h"
#include "tests/wrong/wrong.h"

namespace ladder::optimizer {
namespace {

enum class Fault {
  none,
  no_bias_correction,    // steps that are far too small at first
  no_second_correction,  // corrects the first moment alone
  late_correction,       // counts steps from 0
  l2_decay,              // adds the decay to the gradient, as Adam does
  decay_without_rate,    // decays by the same factor at any learning rate
  no_decay,              // leaves out the decay
  epsilon_inside,        // adds epsilon under the root
  epsilon_uncorrected,   // adds epsilon before the bias correction, like a faster formula
  average_of_old,        // averages the parameters of the step before
  clips_by_value,        // cuts each gradient off instead of scaling all
  clips_nothing,         // ignores the scale
  nesterov,              // looks a step ahead
  rate_for_rest,         // exchanges the first moment's weights beta1 and 1 - beta1
  others_first,          // uses the gradients in g for the first parameters
  rounds_others,         // rounds the gradients in g to d's dtype
};

__device__ Scalars spoiled(Fault fault, Hyper h, Scalars s) {
  if (fault == Fault::no_bias_correction) s.step_size = h.lr;
  if (fault == Fault::no_bias_correction || fault == Fault::no_second_correction) s.root_factor = 1.0f;
  if (fault == Fault::l2_decay || fault == Fault::no_decay) s.decay = 1.0f;
  if (fault == Fault::decay_without_rate) s.decay = 1.0f - h.weight_decay;
  if (fault == Fault::epsilon_uncorrected) s.eps *= s.root_factor;
  if (fault == Fault::rate_for_rest) s.one_minus_beta1 = 1.0f - s.one_minus_beta1;
  h.step += 1.0f;
  return fault == Fault::late_correction ? scalars_of(h, s.scale) : s;
}

__device__ float gradient(Fault fault, const Hyper& h, const Scalars& s, float p, float g) {
  if (fault == Fault::l2_decay) return s.scale * g + h.weight_decay * p;
  if (fault == Fault::clips_by_value) return fminf(fmaxf(g, -s.scale), s.scale);
  return fault == Fault::clips_nothing && s.scale > 0.0f ? g : s.scale * g;
}

// Returns the gradient of parameter i before scaling.
template <Fault kFault, class View>
__device__ float given_gradient(const View& v, long long i) {
  const long long others = v.p.p - v.p.mixed;
  if (kFault == Fault::others_first) return i < others ? v.t.g[i] : v.load(v.t.d, i - others);
  if (i < v.p.mixed) return v.load(v.t.d, i);
  const float g = v.t.g[i - v.p.mixed];
  return kFault == Fault::rounds_others && v.p.mixed > 0 ? v.rounded(g) : g;
}

// Update p and ema with another quotient of the moments.
__device__ void move(const Scalars& s, const State& before, float quotient, State& after) {
  after.p = s.decay * before.p - s.step_size * quotient;
  after.ema = before.ema + s.one_minus_ema_rate * (after.p - before.ema);
}

// Step of one parameter, by the layer's own formulas with a fault.
template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long i) const {
    const State before{.p = v.t.p[i], .m = v.t.m[i], .v = v.t.v[i], .ema = v.t.ema[i]};
    Scalars s = spoiled(kFault, *v.t.hyper, scalars_of(*v.t.hyper, *v.t.scale));
    const float g = gradient(kFault, *v.t.hyper, s, before.p, given_gradient<kFault>(v, i));
    s.scale = 1.0f;  // g is scaled already
    State after = updated(s, before, g);
    if (kFault == Fault::epsilon_inside) {
      move(s, before, after.m / sqrtf(s.root_factor * s.root_factor * after.v + s.eps), after);
    } else if (kFault == Fault::nesterov) {
      const float ahead = after.m + s.one_minus_beta1 * (g - after.m);
      move(s, before, ahead / (s.root_factor * sqrtf(after.v) + s.eps), after);
    } else if (kFault == Fault::average_of_old) {
      after.ema = before.ema + s.one_minus_ema_rate * (before.p - before.ema);
    }
    v.t.p[i] = after.p;
    v.t.m[i] = after.m;
    v.t.v[i] = after.v;
    v.t.ema[i] = after.ema;
    if (v.t.w) v.store(v.t.w, i, after.p);
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<AdamW, &Problem::p, Faulty<kFault>>;

}  // namespace

LADDER_CHEATS(AdamW,
              (std::vector<std::string>{"p100 tensors3 clip", "p203 tensors5", "p77 tensors2 clip",
                                        "p203 tensors5 mixed68"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::no_bias_correction>("no_bias_correction"),
                  faulty<Fault::no_second_correction>("no_second_correction"),
                  faulty<Fault::late_correction>("late_correction"),
                  faulty<Fault::l2_decay>("l2_decay"),
                  faulty<Fault::decay_without_rate>("decay_without_rate"),
                  faulty<Fault::no_decay>("no_decay"),
                  faulty<Fault::epsilon_inside>("epsilon_inside"),
                  faulty<Fault::epsilon_uncorrected>("epsilon_uncorrected"),
                  faulty<Fault::average_of_old>("average_of_old"),
                  faulty<Fault::clips_by_value>("clips_by_value"),
                  faulty<Fault::clips_nothing>("clips_nothing"),
                  faulty<Fault::nesterov>("nesterov"),
                  faulty<Fault::rate_for_rest>("rate_for_rest"),
                  faulty<Fault::others_first>("others_first"),
                  wrong::only<AdamW>({Dtype::bf16, Dtype::f16}, faulty<Fault::rounds_others>("rounds_others")),
              })

}  // namespace ladder::optimizer
