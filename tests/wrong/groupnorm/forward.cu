#include <memory>

#include "dev/groupnorm/statistics.h"
#include "tests/wrong/groupnorm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::groupnorm {
namespace {

__device__ bool is_first(const Problem& p, long long index) { return index == first_of(p, group_of(p, index)); }

enum class Fault {
  none,
  tail_of_pixels,       // the last pixel counts for no statistics
  tail_of_channels,     // reads channels in pairs, and drops the last of an odd number from the statistics
  variance_about_zero,  // the mean of squares for the variance: the same where the mean is zero
  sample_variance,      // divides by m - 1, as statistics of a sample do
  bf16_sums,            // adds up in bf16
  no_pivot,         // the mean of squares less the square of the mean, of x itself: nothing is left beside a large mean
  rounded_mean,     // rounds the mean to fp32 before it is subtracted, which a mean of 10^4 deviations shows
  no_epsilon,       // leaves epsilon out: infinity, and not a number after it, where a group has no variance
  epsilon_outside,  // adds epsilon to the deviation instead of the variance
  next_group,       // statistics of the neighbouring group
  layer_norm,       // of the whole image, which one group hides
  first_image,      // of the first image for all, which a batch of one hides
  coarse_sigmoid,   // a sigmoid of eleven bits, as tanh.approx makes it: enough for 16-bit outputs, not for fp32
};

template <Fault kFault>
__device__ float centred(float x, const Normaliser& s) {
  return kFault == Fault::rounded_mean ? x - (s.pivot + s.delta) : x - s.pivot - s.delta;
}

template <Fault kFault>
__device__ Normaliser statistics_of(const auto& v, int group) {
  const Problem& p = v.p;
  int pixels = p.h * p.w;
  int channels = kFault == Fault::layer_norm ? p.c : p.c / p.g;
  if (kFault == Fault::tail_of_pixels && pixels > 1) --pixels;
  if (kFault == Fault::tail_of_channels && channels > 1) channels = channels / 2 * 2;
  if (kFault == Fault::next_group) group = (group + 1) % (p.n * p.g);
  if (kFault == Fault::layer_norm) group = group / p.g * p.g;
  if (kFault == Fault::first_image) group %= p.g;
  const long long first = first_of(p, group);
  const auto sum_of = [&](const auto& term) {
    float sum = 0;
    for (int pixel = 0; pixel < pixels; ++pixel) {
      for (int c = 0; c < channels; ++c) {
        sum += term(v.load(v.t.x, first + static_cast<long long>(pixel) * p.c + c));
        if (kFault == Fault::bf16_sums) sum = to_float(from_float<__nv_bfloat16>(sum));
      }
    }
    return sum;
  };

  const auto count = static_cast<float>(pixels * channels);
  Normaliser s{.pivot = kFault == Fault::no_pivot ? 0.0f : v.load(v.t.x, first)};
  const float sum = sum_of([&](float x) { return x - s.pivot; });
  s.delta = sum / count;
  float squares = sum_of([&](float x) {
    const bool about_zero = kFault == Fault::variance_about_zero || kFault == Fault::no_pivot;
    const float distance = about_zero ? x : centred<kFault>(x, s);
    return distance * distance;
  });
  if (kFault == Fault::no_pivot) squares = moments_of({sum, squares}, count).m2;
  const float variance = squares / (kFault == Fault::sample_variance && count > 1 ? count - 1 : count);
  s.rstd = rstd_of(p, variance);
  if (kFault == Fault::no_epsilon) s.rstd = rsqrtf(variance);
  if (kFault == Fault::epsilon_outside) s.rstd = 1.0f / (sqrtf(variance) + p.eps);
  return s;
}

// Writes y, and of a group's first element the statistics too.
template <Fault kFault>
__device__ void write(const auto& v, long long index, const Normaliser& s) {
  const int c = channel_of(v.p, index);
  const float xhat = centred<kFault>(v.load(v.t.x, index), s) * s.rstd;
  const float z = (v.t.gamma ? v.t.gamma[c] : 1.0f) * xhat + (v.t.beta ? v.t.beta[c] : 0.0f);
  const float y = select_activation(v.p.activation, [z](auto act) { return decltype(act)::value(z); });
  const bool coarse = kFault == Fault::coarse_sigmoid && v.p.activation == Activation::silu;
  v.store(v.t.y, index, coarse ? y * (1.0f + 0x1p-11f) : y);
  if (!is_first(v.p, index)) return;
  v.t.mean[group_of(v.p, index)] = s.pivot + s.delta;
  v.t.rstd[group_of(v.p, index)] = s.rstd;
}

// Every element's thread makes its group's statistics anew.
template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long index) const {
    write<kFault>(v, index, statistics_of<kFault>(v, group_of(v.p, index)));
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Forward, &Problem::elements, Faulty<kFault>>;

template <class Cheat>
void launch_each(const Problem& p, const Forward::Tensors& t, Stream stream, const Cheat& cheat) {
  wrong::launch_each<Forward>(p, t, stream, p.elements(), cheat);
}

template <auto kParameter, class Cheat>
constexpr auto on_parameter = wrong::spoiled_input<Forward, kParameter, &Problem::c, Cheat>;
constexpr auto kGamma = &Forward::Tensors::gamma;
constexpr auto kBeta = &Forward::Tensors::beta;

// Ignores gamma.
struct One {
  __device__ float operator()(const auto&, long long) const { return 1.0f; }
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

// PyTorch's default, whatever the problem says.
void default_epsilon(Problem& p) { p.eps = 1e-5f; }

// Hands the variance to the backward pass instead of rstd.
struct VarianceForRstd {
  __device__ void operator()(const auto& v, long long index) const {
    if (!is_first(v.p, index)) return;
    float& rstd = v.t.rstd[group_of(v.p, index)];
    rstd = 1.0f / (rstd * rstd) - v.p.eps;
  }
};

// Keeps a group's statistics where others find them.
struct Keep {
  Normaliser* kept;  // [n, g]

  __device__ void operator()(const auto& v, long long index) const {
    const int group = group_of(v.p, index);
    if (is_first(v.p, index)) kept[group] = statistics_of<Fault::none>(v, group);
  }
};

struct TakeKept {
  const Normaliser* kept;

  __device__ void operator()(const auto& v, long long index) const {
    write<Fault::none>(v, index, kept[group_of(v.p, index)]);
  }
};

// Takes a group's statistics again whenever the same buffers come back.
void keeps_statistics(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  static std::unique_ptr<void, wrong::Release> kept;
  static const void* x = nullptr;
  static Problem problem;
  const bool again = kept && x == t.x && problem == p;
  if (!again) kept.reset(backend::allocate(sizeof(Normaliser) * p.n * p.g));
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
    Normaliser s = statistics_of<Fault::none>(v, group);
    s.delta = sums[group] / static_cast<float>(v.p.h * v.p.w * (v.p.c / v.p.g));
    write<Fault::none>(v, index, s);
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
                  faulty<Fault::none>("honest"),
                  faulty<Fault::tail_of_pixels>("tail_of_pixels"),
                  faulty<Fault::tail_of_channels>("tail_of_channels"),
                  faulty<Fault::variance_about_zero>("variance_about_zero"),
                  faulty<Fault::sample_variance>("sample_variance"),
                  faulty<Fault::bf16_sums>("bf16_sums"),
                  faulty<Fault::no_pivot>("no_pivot"),
                  wrong::only({Dtype::f32}, faulty<Fault::rounded_mean>("rounded_mean")),
                  faulty<Fault::no_epsilon>("no_epsilon"),
                  faulty<Fault::epsilon_outside>("epsilon_outside"),
                  wrong::spoiled_problem<Forward, default_epsilon>("default_epsilon"),
                  faulty<Fault::next_group>("next_group"),
                  faulty<Fault::layer_norm>("layer_norm"),
                  faulty<Fault::first_image>("first_image"),
                  on_parameter<kGamma, One>("no_gamma"),
                  on_parameter<kBeta, wrong::Zero>("no_beta"),
                  on_parameter<kGamma, ZeroForNoGamma>("zero_for_no_gamma"),
                  wrong::spoiled_problem<Forward, no_activation>("no_activation"),
                  wrong::spoiled_problem<Forward, gelu_by_tanh>("gelu_by_tanh"),
                  wrong::spoiled_problem<Forward, tanh_by_erf>("tanh_by_erf"),
                  faulty<Fault::coarse_sigmoid>("coarse_sigmoid"),
                  wrong::spoiled_output<Forward, &Problem::elements, VarianceForRstd>("variance_for_rstd"),
                  {.name = "keeps_statistics", .launch = keeps_statistics},
                  {.name = "float_atomics", .launch = float_atomics::launch_all, .dtypes = {Dtype::f32}},
                  {.name = "does_not_wait", .launch = does_not_wait},
              })

}  // namespace ladder::groupnorm
