// An honest forward kernel, to spoil in one way each: every element's thread makes its group's statistics anew.
#include <memory>

#include "dev/groupnorm/statistics.h"
#include "tests/wrong/groupnorm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::groupnorm {
namespace {

__device__ bool is_first(const Problem& p, long long index) { return index == first_of(p, group_of(p, index)); }

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
  __device__ float activated(Activation activation, float z) const { return value_of(activation, z); }
};

template <class Steps>
__device__ Normaliser statistics_of(const auto& v, const Steps& steps, int group) {
  const long long first = first_of(v.p, steps.group(v.p, group));
  const auto sum_of = [&](const auto& term) {
    float sum = 0;
    for (int pixel = 0; pixel < steps.pixels(v.p); ++pixel) {
      const long long begin = first + static_cast<long long>(pixel) * v.p.c;
      for (int c = 0; c < steps.channels(v.p); ++c) sum = steps.add(sum, term(v.load(v.t.x, begin + c)));
    }
    return sum;
  };
  const auto count = static_cast<float>(steps.pixels(v.p) * steps.channels(v.p));
  Normaliser s{.pivot = v.load(v.t.x, first)};
  s.delta = sum_of([&](float value) { return value - s.pivot; }) / count;
  const float squares = sum_of([&](float value) {
    const float centred = steps.centred_for_variance(value, s);
    return centred * centred;
  });
  s.rstd = steps.rstd(squares / steps.divisor(count));
  return s;
}

// Writes y, and of a group's first element the statistics too.
template <class Steps>
__device__ void write(const auto& v, const Steps& steps, long long index, const Normaliser& s) {
  const int c = channel_of(v.p, index);
  const float xhat = steps.centred(v.load(v.t.x, index), s) * s.rstd;
  const float z = (v.t.gamma ? v.t.gamma[c] : 1.0f) * xhat + (v.t.beta ? v.t.beta[c] : 0.0f);
  v.store(v.t.y, index, steps.activated(v.p.activation, z));
  if (!is_first(v.p, index)) return;
  v.t.mean[group_of(v.p, index)] = s.pivot + s.delta;
  v.t.rstd[group_of(v.p, index)] = s.rstd;
}

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  __device__ void operator()(const auto& v, long long index) const {
    write(v, Steps{}, index, statistics_of(v, Steps{}, group_of(v.p, index)));
  }
};

template <class Cheat>
void launch_each(const Problem& p, const Forward::Tensors& t, Stream stream, const Cheat& cheat) {
  wrong::launch_each<Forward>(p, t, stream, p.elements(), cheat);
}

template <class Cheat>
void launch_cheat(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  launch_each(p, t, stream, Cheat{});
}

// Three floats a group.
std::size_t statistics_bytes(const Problem& p) { return std::size_t{3} * p.n * p.g * sizeof(float); }

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
  __device__ void operator()(const auto& v, long long index) const {
    const long long first = first_of(v.p, group_of(v.p, index));
    float2 sums{0, 0};
    for (int pixel = 0; pixel < v.p.h * v.p.w; ++pixel) {
      for (int c = 0; c < v.p.c / v.p.g; ++c) {
        const float value = v.load(v.t.x, first + pixel * v.p.c + c);
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

template <auto kParameter, class Cheat>
constexpr auto on_parameter = wrong::spoiled_input<Forward, kParameter, &Problem::c, Cheat>;
constexpr auto kGamma = &Forward::Tensors::gamma;
constexpr auto kBeta = &Forward::Tensors::beta;

// Ignores gamma.
struct NoGamma {
  __device__ float operator()(const auto&, long long) const { return 1.0f; }
};

// Ignores beta.
struct NoBeta {
  __device__ float operator()(const auto&, long long) const { return 0.0f; }
};

// Takes a gamma that is not given for zero.
struct ZeroForNoGamma {
  __device__ float operator()(const auto& v, long long c) const { return v.t.gamma ? v.t.gamma[c] : 0.0f; }
};

// Leaves the activation to somebody else.
void no_activation(Problem& p) { p.activation = Activation::identity; }

// The usual approximation of gelu, where gelu itself was asked for: at most 5e-4 apart.
void gelu_by_tanh(Problem& p) {
  if (p.activation == Activation::gelu) p.activation = Activation::gelu_tanh;
}

// The other way round: gelu itself, where its approximation was asked for.
void tanh_by_erf(Problem& p) {
  if (p.activation == Activation::gelu_tanh) p.activation = Activation::gelu;
}

// A sigmoid of eleven bits, as tanh.approx makes it: enough for 16-bit outputs, not for fp32.
struct CoarseSigmoid : Honest {
  __device__ float activated(Activation activation, float z) const {
    const float exact = value_of(activation, z);
    return activation == Activation::silu ? exact * (1.0f + 0x1p-11f) : exact;
  }
};

// Hands the variance to the backward pass instead of rstd.
struct VarianceForRstd {
  __device__ void operator()(const auto& v, long long index) const {
    if (!is_first(v.p, index)) return;
    float& rstd = v.t.rstd[group_of(v.p, index)];
    rstd = 1.0f / (rstd * rstd) - kEpsilon;
  }
};

// Keeps a group's statistics where others find them.
struct Keep {
  Normaliser* kept;  // [n, g]

  __device__ void operator()(const auto& v, long long index) const {
    const int group = group_of(v.p, index);
    if (is_first(v.p, index)) kept[group] = statistics_of(v, Honest{}, group);
  }
};

struct TakeKept {
  const Normaliser* kept;

  __device__ void operator()(const auto& v, long long index) const {
    write(v, Honest{}, index, kept[group_of(v.p, index)]);
  }
};

// Takes a group's statistics again whenever the same buffers come back.
void keeps_statistics(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  static std::unique_ptr<void, wrong::Release> kept;
  static const void* x = nullptr;
  static Problem problem;
  const bool again = kept && x == t.x && problem == p;
  if (!again) kept.reset(backend::allocate(statistics_bytes(p)));
  x = t.x;
  problem = p;
  auto* const groups = static_cast<Normaliser*>(kept.get());
  if (!again) launch_each(p, t, stream, Keep{groups});
  launch_each(p, t, stream, TakeKept{groups});
}

// Adds up in whatever order threads arrive: every answer is within the bound, and no two need be the same.
namespace float_atomics {

struct Clear {
  float* sums;  // [n, g]
  __device__ void operator()(const auto& v, long long index) const {
    if (is_first(v.p, index)) sums[group_of(v.p, index)] = 0.0f;
  }
};

struct Sum {
  float* sums;
  __device__ void operator()(const auto& v, long long index) const {
    const int group = group_of(v.p, index);
    atomicAdd(sums + group, v.load(v.t.x, index) - v.load(v.t.x, first_of(v.p, group)));
  }
};

struct Normalise {
  const float* sums;
  __device__ void operator()(const auto& v, long long index) const {
    const int group = group_of(v.p, index);
    Normaliser s = statistics_of(v, Honest{}, group);
    s.delta = sums[group] / static_cast<float>(v.p.h * v.p.w * (v.p.c / v.p.g));
    write(v, Honest{}, index, s);
  }
};

void launch_all(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  auto* const sums = static_cast<float*>(workspace);
  launch_each(p, t, stream, Clear{sums});
  launch_each(p, t, stream, Sum{sums});
  launch_each(p, t, stream, Normalise{sums});
}

}  // namespace float_atomics

// A group's first thread makes the statistics, and all others read them, of whatever block, without waiting: right
// where blocks and threads run in order.
struct DoesNotWait {
  Normaliser* shared;

  __device__ void operator()(const auto& v, long long index) const {
    Keep{shared}(v, index);
    TakeKept{shared}(v, index);
  }
};

void does_not_wait(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  launch_each(p, t, stream, DoesNotWait{static_cast<Normaliser*>(workspace)});
}

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
                  on_parameter<kGamma, NoGamma>("no_gamma"),
                  on_parameter<kBeta, NoBeta>("no_beta"),
                  on_parameter<kGamma, ZeroForNoGamma>("zero_for_no_gamma"),
                  wrong::spoiled_problem<Forward, no_activation>("no_activation"),
                  wrong::spoiled_problem<Forward, gelu_by_tanh>("gelu_by_tanh"),
                  wrong::spoiled_problem<Forward, tanh_by_erf>("tanh_by_erf"),
                  {.name = "coarse_sigmoid", .launch = launch_cheat<Spoiled<CoarseSigmoid>>},
                  wrong::spoiled_output<Forward, &Problem::elements, VarianceForRstd>("variance_for_rstd"),
                  {.name = "keeps_statistics", .launch = keeps_statistics},
                  {.name = "float_atomics",
                   .launch = float_atomics::launch_all,
                   .workspace_bytes = statistics_bytes,
                   .dtypes = {Dtype::f32}},
                  {.name = "does_not_wait", .launch = does_not_wait, .workspace_bytes = statistics_bytes},
              })

}  // namespace ladder::groupnorm
