#include "dev/optimizer/optimizer.h"
#include "tests/wrong/wrong.h"

#include <cmath>

namespace ladder::optimizer {
namespace {

template <class T>
struct View {
  Problem p;
  const float* g;
  const float* scale;
  const Hyper* hyper;
  float* values;
  float* m;
  float* v;
  float* ema;
  T* rounded;

  View(const Problem& problem, const AdamW::Tensors& t, void*)
      : p(problem),
        g(t.g),
        scale(t.scale),
        hyper(t.hyper),
        values(t.p),
        m(t.m),
        v(t.v),
        ema(t.ema),
        rounded(static_cast<T*>(t.w)) {}

  __host__ __device__ long long count() const { return p.p; }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f - h.lr * h.weight_decay) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const AdamW::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<AdamW, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// Steps that are far too small at first.
struct NoBiasCorrection {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = 1.0f;
    const float bias2 = 1.0f;
    const float p = (1.0f - h.lr * h.weight_decay) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Corrects the mean alone.
struct NoSecondCorrection {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = 1.0f;
    const float p = (1.0f - h.lr * h.weight_decay) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Counts steps from 0.
struct LateCorrection {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f((h.step + 1.0f) * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f((h.step + 1.0f) * log1pf(-h.one_minus_beta2));
    const float p = (1.0f - h.lr * h.weight_decay) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Adds the decay to the gradient, as Adam does.
struct L2Decay {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i] + h.weight_decay * before;
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Decays by the same whatever the learning rate.
struct DecayWithoutRate {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f - h.weight_decay) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Forgets it.
struct NoDecay {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// In the root.
struct EpsilonInside {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f - h.lr * h.weight_decay) * before - h.lr / bias1 * m / (sqrtf(w / bias2 + h.eps));
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Added before the correction, as a faster formula does.
struct EpsilonUncorrected {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f - h.lr * h.weight_decay) * before - h.lr / bias1 * m / ((sqrtf(w) + h.eps) / sqrtf(bias2));
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Averages the parameters of the step before.
struct AverageOfOld {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f - h.lr * h.weight_decay) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (before - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Cuts each gradient off instead of scaling all.
struct ClipsByValue {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = fminf(fmaxf(v.g[i], -*v.scale), *v.scale);
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f - h.lr * h.weight_decay) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Ignores the scale.
struct ClipsNothing {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = v.g[i] * (*v.scale > 0.0f ? 1.0f : 0.0f);
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f - h.lr * h.weight_decay) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Looks a step ahead.
struct Nesterov {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = m + h.one_minus_beta1 * (g - m);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f - h.lr * h.weight_decay) * before -
                    h.lr / bias1 * (m + h.one_minus_beta1 * (g - m)) / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
};

// Takes the moments' weights for each other.
struct RateForRest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const Hyper h = *v.hyper;
    const float before = v.values[i];
    const float g = *v.scale * v.g[i];
    float m = v.m[i];
    float w = v.v[i];
    m = g + h.one_minus_beta1 * (m - g);
    w = w + h.one_minus_beta2 * (g * g - w);
    const float bias1 = -expm1f(h.step * log1pf(-h.one_minus_beta1));
    const float bias2 = -expm1f(h.step * log1pf(-h.one_minus_beta2));
    const float p = (1.0f - h.lr * h.weight_decay) * before - h.lr / bias1 * m / (sqrtf(w / bias2) + h.eps);
    v.values[i] = p;
    v.m[i] = m;
    v.v[i] = w;
    v.ema[i] += h.one_minus_ema_rate * (p - v.ema[i]);
    if (v.rounded) v.rounded[i] = from_float<T>(p);
  }
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
