// An honest forward kernel, to spoil in one way each: every element's thread makes its group's statistics anew.
#include <memory>

#include "dev/groupnorm/statistics.h"
#include "tests/wrong/groupnorm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::groupnorm {
namespace {

template <class T>
struct View {
  Problem p;
  const T* x;
  const float* gamma;
  const float* beta;
  T* y;
  float* mean;
  float* rstd;
  float* workspace;

  View(const Problem& problem, const Forward::Tensors& t, void* space)
      : p(problem),
        x(static_cast<const T*>(t.x)),
        gamma(t.gamma),
        beta(t.beta),
        y(static_cast<T*>(t.y)),
        mean(t.mean),
        rstd(t.rstd),
        workspace(static_cast<float*>(space)) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.n) * p.h * p.w * p.c; }
  __host__ __device__ int num_groups() const { return p.n * p.g; }
  __device__ int channel(long long index) const { return static_cast<int>(index % p.c); }
  __device__ int image(long long index) const { return static_cast<int>(index / p.c / (p.h * p.w)); }
  __device__ int group(long long index) const { return image(index) * p.g + channel(index) / (p.c / p.g); }
  // The first element of the group, and whether this is it.
  __device__ long long first(int group) const {
    return static_cast<long long>(group / p.g) * p.h * p.w * p.c + group % p.g * (p.c / p.g);
  }
  __device__ bool is_first(long long index) const { return index == first(group(index)); }
};

// What an honest kernel does, with each step open to a spoiled one.
struct Honest {
  // The elements that a group's statistics are taken of.
  __device__ int group(const Problem&, int group) const { return group; }
  __device__ int pixels(const Problem& p) const { return p.h * p.w; }
  __device__ int channels(const Problem& p) const { return p.c / p.g; }

  __device__ float add(float sum, float term) const { return sum + term; }
  __device__ float centred(float x, const Normaliser& s) const { return x - s.pivot - s.delta; }
  __device__ float centred_for_variance(float x, const Normaliser& s) const { return centred(x, s); }
  __device__ float divisor(float count) const { return count; }
  __device__ float rstd(float variance) const { return rstd_of(variance); }

  __device__ float gamma(const float* gamma, int c) const { return gamma ? gamma[c] : 1.0f; }
  __device__ float beta(const float* beta, int c) const { return beta ? beta[c] : 0.0f; }
  __device__ float activated(Activation activation, float z) const { return value_of(activation, z); }
  template <class T>
  __device__ void store_statistics(const View<T>& v, int group, const Normaliser& s) const {
    v.mean[group] = s.pivot + s.delta;
    v.rstd[group] = s.rstd;
  }
};

template <class T, class Steps>
__device__ Normaliser statistics_of(const View<T>& v, const Steps& steps, int group) {
  const T* const x = v.x + v.first(steps.group(v.p, group));
  const auto sum_of = [&](const auto& term) {
    float sum = 0;
    for (int pixel = 0; pixel < steps.pixels(v.p); ++pixel) {
      for (int c = 0; c < steps.channels(v.p); ++c) sum = steps.add(sum, term(to_float(x[pixel * v.p.c + c])));
    }
    return sum;
  };
  const auto count = static_cast<float>(steps.pixels(v.p) * steps.channels(v.p));
  Normaliser s{.pivot = to_float(x[0])};
  s.delta = sum_of([&](float value) { return value - s.pivot; }) / count;
  const float squares = sum_of([&](float value) {
    const float centred = steps.centred_for_variance(value, s);
    return centred * centred;
  });
  s.rstd = steps.rstd(squares / steps.divisor(count));
  return s;
}

template <class T, class Steps>
__device__ float output(const View<T>& v, const Steps& steps, long long index, const Normaliser& s) {
  const int c = v.channel(index);
  const float xhat = steps.centred(to_float(v.x[index]), s) * s.rstd;
  return steps.activated(v.p.activation, steps.gamma(v.gamma, c) * xhat + steps.beta(v.beta, c));
}

// Writes y, and of a group's first element the statistics too.
template <class T, class Steps>
__device__ void write(const View<T>& v, const Steps& steps, long long index, const Normaliser& s) {
  v.y[index] = from_float<T>(output(v, steps, index, s));
  if (v.is_first(index)) steps.store_statistics(v, v.group(index), s);
}

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    write(v, Steps{}, index, statistics_of(v, Steps{}, v.group(index)));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Forward, View, Cheat>(p, t, workspace, stream);
}

// Three floats a group.
inline std::size_t statistics_bytes(const Problem& p) { return std::size_t{3} * p.n * p.g * sizeof(float); }

// What can be wrong with it.

// The last pixel counts for no statistics.
struct TailOfPixels : Honest {
  __device__ int pixels(const Problem& p) const { return p.h * p.w > 1 ? p.h * p.w - 1 : 1; }
};

// Reads channels in pairs, and drops the last of an odd number from the statistics.
struct TailOfChannels : Honest {
  __device__ int channels(const Problem& p) const { return p.c / p.g > 1 ? p.c / p.g / 2 * 2 : 1; }
};

// The mean of squares for the variance: the same where the mean is zero.
struct VarianceAboutZero : Honest {
  __device__ float centred_for_variance(float x, const Normaliser&) const { return x; }
};

// Divides by m - 1, as statistics of a sample do.
struct SampleVariance : Honest {
  __device__ float divisor(float count) const { return count > 1 ? count - 1 : 1; }
};

// Adds up in bf16.
struct Bf16Sums : Honest {
  __device__ float add(float sum, float term) const { return to_float(from_float<__nv_bfloat16>(sum + term)); }
};

// The mean of squares less the square of the mean, of x itself: nothing is left of it behind a large mean.
struct NoPivot {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const T* const x = v.x + v.first(v.group(index));
    float2 sums{0, 0};
    for (int pixel = 0; pixel < v.p.h * v.p.w; ++pixel) {
      for (int c = 0; c < v.p.c / v.p.g; ++c) {
        const float value = to_float(x[pixel * v.p.c + c]);
        sums.x += value;
        sums.y = fmaf(value, value, sums.y);
      }
    }
    const auto count = static_cast<float>(v.p.h * v.p.w * (v.p.c / v.p.g));
    const Moments moments = moments_of(sums, count);
    write(v, Honest{}, index, {.pivot = 0, .delta = moments.mean, .rstd = rstd_of(moments.m2 / count)});
  }
};

// Rounds the mean to fp32 before it is subtracted, which a mean of 10^4 deviations shows.
struct RoundedMean : Honest {
  __device__ float centred(float x, const Normaliser& s) const { return x - (s.pivot + s.delta); }
};

// Leaves epsilon out: infinity, and not a number behind it, where a group has no variance.
struct NoEpsilon : Honest {
  __device__ float rstd(float variance) const { return rsqrtf(variance); }
};

// Adds epsilon to the deviation instead of the variance.
struct EpsilonOutside : Honest {
  __device__ float rstd(float variance) const { return 1.0f / (sqrtf(variance) + kEpsilon); }
};

// Statistics of the neighbouring group.
struct NextGroup : Honest {
  __device__ int group(const Problem& p, int group) const { return (group + 1) % (p.n * p.g); }
};

// Statistics of the whole image, which one group hides.
struct LayerNorm : Honest {
  __device__ int group(const Problem& p, int group) const { return group / p.g * p.g; }
  __device__ int channels(const Problem& p) const { return p.c; }
};

// Statistics of the first image for all, which a batch of one hides.
struct FirstImage : Honest {
  __device__ int group(const Problem& p, int group) const { return group % p.g; }
};

// Ignores gamma.
struct NoGamma : Honest {
  __device__ float gamma(const float*, int) const { return 1.0f; }
};

// Ignores beta.
struct NoBeta : Honest {
  __device__ float beta(const float*, int) const { return 0.0f; }
};

// Takes a gamma that is not given for zero.
struct ZeroForNoGamma : Honest {
  __device__ float gamma(const float* gamma, int c) const { return gamma ? gamma[c] : 0.0f; }
};

// Leaves the activation to somebody else.
struct NoActivation : Honest {
  __device__ float activated(Activation, float z) const { return z; }
};

// The usual approximation of gelu, where gelu itself was asked for: at most 5e-4 apart.
struct GeluByTanh : Honest {
  __device__ float activated(Activation activation, float z) const {
    return value_of(activation == Activation::gelu ? Activation::gelu_tanh : activation, z);
  }
};

// The other way round: gelu itself, where its approximation was asked for.
struct TanhByErf : Honest {
  __device__ float activated(Activation activation, float z) const {
    return value_of(activation == Activation::gelu_tanh ? Activation::gelu : activation, z);
  }
};

// A sigmoid of eleven bits, as tanh.approx makes it: enough for 16-bit outputs, not for fp32.
struct CoarseSigmoid : Honest {
  __device__ float activated(Activation activation, float z) const {
    const float exact = value_of(activation, z);
    return activation == Activation::silu ? exact * (1.0f + 0x1p-11f) : exact;
  }
};

// Hands the variance to the backward pass instead of rstd.
struct VarianceForRstd : Honest {
  template <class T>
  __device__ void store_statistics(const View<T>& v, int group, const Normaliser& s) const {
    v.mean[group] = s.pivot + s.delta;
    v.rstd[group] = 1.0f / (s.rstd * s.rstd) - kEpsilon;
  }
};

// Keeps a group's statistics, and takes them again whenever the same buffers come back.
namespace keeps_statistics {

struct Keep {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    if (!v.is_first(index)) return;
    const int group = v.group(index);
    const Normaliser s = statistics_of(v, Honest{}, group);
    v.workspace[3 * group] = s.pivot;
    v.workspace[3 * group + 1] = s.delta;
    v.workspace[3 * group + 2] = s.rstd;
  }
};

struct Replay {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const float* const kept = v.workspace + 3 * v.group(index);
    write(v, Honest{}, index, {.pivot = kept[0], .delta = kept[1], .rstd = kept[2]});
  }
};

void launch_once(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  static std::unique_ptr<void, wrong::Release> kept;
  static const void* x = nullptr;
  static Problem problem;
  if (!kept || x != t.x || problem != p) {
    kept.reset(backend::allocate(statistics_bytes(p)));
    x = t.x;
    problem = p;
    launch_cheat<Keep>(p, t, kept.get(), stream);
  }
  launch_cheat<Replay>(p, t, kept.get(), stream);
}

}  // namespace keeps_statistics

// Adds up in whatever order threads arrive: every answer is within the bound, and no two need be the same.
namespace float_atomics {

struct Clear {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    if (v.is_first(index)) v.workspace[v.group(index)] = 0.0f;
  }
};

struct Sum {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const int group = v.group(index);
    atomicAdd(v.workspace + group, to_float(v.x[index]) - to_float(v.x[v.first(group)]));
  }
};

struct Normalise {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    Normaliser s = statistics_of(v, Honest{}, v.group(index));
    s.delta = v.workspace[v.group(index)] / static_cast<float>(v.p.h * v.p.w * (v.p.c / v.p.g));
    write(v, Honest{}, index, s);
  }
};

void launch_all(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Clear>(p, t, workspace, stream);
  launch_cheat<Sum>(p, t, workspace, stream);
  launch_cheat<Normalise>(p, t, workspace, stream);
}

}  // namespace float_atomics

// A group's first thread makes the statistics, and all others read them, of whatever block, without waiting: right
// where blocks and threads run in order.
struct DoesNotWait {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const int group = v.group(index);
    float* const shared = v.workspace + 3 * group;
    if (v.is_first(index)) {
      const Normaliser s = statistics_of(v, Honest{}, group);
      shared[0] = s.pivot;
      shared[1] = s.delta;
      shared[2] = s.rstd;
    }
    write(v, Honest{}, index, {.pivot = shared[0], .delta = shared[1], .rstd = shared[2]});
  }
};

}  // namespace

LADDER_CHEATS(Forward, wrong_problems(),
              {
                  {.name = "honest", .launch = launch_cheat<Spoiled<Honest>>},
                  {.name = "tail_of_pixels", .launch = launch_cheat<Spoiled<TailOfPixels>>},
                  {.name = "tail_of_channels", .launch = launch_cheat<Spoiled<TailOfChannels>>},
                  {.name = "variance_about_zero", .launch = launch_cheat<Spoiled<VarianceAboutZero>>},
                  {.name = "sample_variance", .launch = launch_cheat<Spoiled<SampleVariance>>},
                  {.name = "bf16_sums", .launch = launch_cheat<Spoiled<Bf16Sums>>},
                  {.name = "no_pivot", .launch = launch_cheat<NoPivot>},
                  {.name = "rounded_mean", .launch = launch_cheat<Spoiled<RoundedMean>>, .dtypes = {Dtype::f32}},
                  {.name = "no_epsilon", .launch = launch_cheat<Spoiled<NoEpsilon>>},
                  {.name = "epsilon_outside", .launch = launch_cheat<Spoiled<EpsilonOutside>>},
                  {.name = "next_group", .launch = launch_cheat<Spoiled<NextGroup>>},
                  {.name = "layer_norm", .launch = launch_cheat<Spoiled<LayerNorm>>},
                  {.name = "first_image", .launch = launch_cheat<Spoiled<FirstImage>>},
                  {.name = "no_gamma", .launch = launch_cheat<Spoiled<NoGamma>>},
                  {.name = "no_beta", .launch = launch_cheat<Spoiled<NoBeta>>},
                  {.name = "zero_for_no_gamma", .launch = launch_cheat<Spoiled<ZeroForNoGamma>>},
                  {.name = "no_activation", .launch = launch_cheat<Spoiled<NoActivation>>},
                  {.name = "gelu_by_tanh", .launch = launch_cheat<Spoiled<GeluByTanh>>},
                  {.name = "tanh_by_erf", .launch = launch_cheat<Spoiled<TanhByErf>>},
                  {.name = "coarse_sigmoid", .launch = launch_cheat<Spoiled<CoarseSigmoid>>},
                  {.name = "variance_for_rstd", .launch = launch_cheat<Spoiled<VarianceForRstd>>},
                  {.name = "keeps_statistics", .launch = keeps_statistics::launch_once},
                  {.name = "float_atomics",
                   .launch = float_atomics::launch_all,
                   .workspace_bytes = statistics_bytes,
                   .dtypes = {Dtype::f32}},
                  {.name = "does_not_wait", .launch = launch_cheat<DoesNotWait>, .workspace_bytes = statistics_bytes},
              })

}  // namespace ladder::groupnorm
