#include <memory>

#include "dev/layernorm/rows.h"
#include "tests/wrong/layernorm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::layernorm {
namespace {

enum class Fault {
  none,
  tail,                 // reads columns in pairs, and drops the last one or two from the statistics
  tile,                 // statistics of the row's first 32 elements
  variance_about_zero,  // the mean of squares for the variance: the same where the mean is zero
  sample_variance,      // divides by n - 1, as statistics of a sample do
  bf16_sums,            // adds up in bf16
  no_pivot,         // the mean of squares less the square of the mean, of x itself: nothing is left beside a large mean
  rounded_mean,     // rounds the mean to fp32 before it is subtracted, which a mean of 10^4 deviations shows
  no_epsilon,       // leaves epsilon out
  epsilon_outside,  // adds epsilon to the deviation instead of the variance
  next_row,         // statistics of the neighbouring row
  unmerged,         // the mean of two halves' variances: what lies between their means is lost
};

template <Fault kFault>
__device__ float centred(float x, const Normaliser& s) {
  return kFault == Fault::rounded_mean ? x - (s.pivot + s.delta) : x - s.pivot - s.delta;
}

template <Fault kFault>
__device__ float variance_of(const auto& v, long long first, int count, Normaliser& s) {
  const auto sum_of = [&](const auto& term) {
    float sum = 0;
    for (int i = 0; i < count; ++i) {
      sum += term(v.load(v.t.x, first + i));
      if (kFault == Fault::bf16_sums) sum = to_float(from_float<__nv_bfloat16>(sum));
    }
    return sum;
  };
  s.pivot = kFault == Fault::no_pivot ? 0.0f : v.load(v.t.x, first);
  const float sum = sum_of([&](float x) { return x - s.pivot; });
  s.delta = sum / static_cast<float>(count);
  float squares = sum_of([&](float x) {
    const bool about_zero = kFault == Fault::variance_about_zero || kFault == Fault::no_pivot;
    const float distance = about_zero ? x : centred<kFault>(x, s);
    return distance * distance;
  });
  if (kFault == Fault::no_pivot) squares = moments_of({sum, squares}, static_cast<float>(count)).m2;
  return squares / static_cast<float>(kFault == Fault::sample_variance && count > 1 ? count - 1 : count);
}

template <Fault kFault>
__device__ Normaliser statistics_of(const auto& v, int row) {
  const Problem& p = v.p;
  int count = p.n;
  if (kFault == Fault::tail) count = count > 2 ? (count - 1) / 2 * 2 : count;
  if (kFault == Fault::tile) count = min(count, 32);
  if (kFault == Fault::next_row) row = (row + 1) % p.m;
  const long long first = static_cast<long long>(row) * p.n;
  Normaliser s;
  float variance = variance_of<kFault>(v, first, count, s);
  if (kFault == Fault::unmerged && count > 1) {
    Normaliser half;
    const int middle = count / 4;  // quarters differ more than halves
    variance = (variance_of<kFault>(v, first, middle, half) * static_cast<float>(middle) +
                variance_of<kFault>(v, first + middle, count - middle, half) * static_cast<float>(count - middle)) /
               static_cast<float>(count);
  }
  s.rstd = rsqrtf(variance + p.eps);
  if (kFault == Fault::no_epsilon) s.rstd = rsqrtf(variance);
  if (kFault == Fault::epsilon_outside) s.rstd = 1.0f / (sqrtf(variance) + p.eps);
  return s;
}

// Writes y, and of a row's first element the statistics too.
template <Fault kFault>
__device__ void write(const auto& v, long long index, const Normaliser& s) {
  const int column = column_of(v.p, index);
  const float xhat = centred<kFault>(v.load(v.t.x, index), s) * s.rstd;
  v.store(v.t.y, index, v.t.gamma[column] * xhat + v.t.beta[column]);
  if (column == 0) store_statistics(v.t, row_of(v.p, index), s);
}

// Every element's thread makes its row's statistics anew.
template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long index) const {
    write<kFault>(v, index, statistics_of<kFault>(v, row_of(v.p, index)));
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Forward, &Problem::elements, Faulty<kFault>>;

template <auto kParameter, class Cheat>
constexpr auto on_parameter = wrong::spoiled_input<Forward, kParameter, &Problem::n, Cheat>;

// Ignores gamma.
struct One {
  __device__ float operator()(const auto&, long long) const { return 1.0f; }
};

// PyTorch's default, whatever the problem says.
void default_epsilon(Problem& p) { p.eps = 1e-5f; }

// Hands the variance to the backward pass instead of rstd.
struct VarianceForRstd {
  __device__ void operator()(const auto& v, long long row) const {
    float& rstd = v.t.rstd[row];
    rstd = 1.0f / (rstd * rstd) - v.p.eps;
  }
};

// Keeps a row's statistics where others find them.
struct Keep {
  Normaliser* kept;  // [m]

  __device__ void operator()(const auto& v, long long index) const {
    const int row = row_of(v.p, index);
    if (column_of(v.p, index) == 0) kept[row] = statistics_of<Fault::none>(v, row);
  }
};

struct TakeKept {
  const Normaliser* kept;

  __device__ void operator()(const auto& v, long long index) const {
    write<Fault::none>(v, index, kept[row_of(v.p, index)]);
  }
};

// Takes a row's statistics again whenever the same buffers come back.
void keeps_statistics(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  static std::unique_ptr<void, wrong::Release> kept;
  static const void* x = nullptr;
  static Problem problem;
  const bool again = kept && x == t.x && problem == p;
  if (!again) kept.reset(backend::allocate(sizeof(Normaliser) * p.m));
  x = t.x;
  problem = p;
  auto* const rows = static_cast<Normaliser*>(kept.get());
  if (!again) wrong::launch_each<Forward>(p, t, stream, p.elements(), Keep{rows});
  wrong::launch_each<Forward>(p, t, stream, p.elements(), TakeKept{rows});
}

// A row's first thread makes the statistics, and all others read them, of whatever block, without waiting: right where
// blocks and threads run in order.
struct DoesNotWait {
  Normaliser* shared;

  __device__ void operator()(const auto& v, long long index) const {
    Keep{shared}(v, index);
    TakeKept{shared}(v, index);
  }
};

void does_not_wait(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_each<Forward>(p, t, stream, p.elements(), DoesNotWait{static_cast<Normaliser*>(workspace)});
}

}  // namespace

LADDER_CHEATS(Forward, wrong_problems(),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::tail>("tail"),
                  faulty<Fault::tile>("tile"),
                  faulty<Fault::variance_about_zero>("variance_about_zero"),
                  faulty<Fault::sample_variance>("sample_variance"),
                  faulty<Fault::bf16_sums>("bf16_sums"),
                  faulty<Fault::no_pivot>("no_pivot"),
                  wrong::only({Dtype::f32}, faulty<Fault::rounded_mean>("rounded_mean")),
                  faulty<Fault::no_epsilon>("no_epsilon"),
                  faulty<Fault::epsilon_outside>("epsilon_outside"),
                  wrong::spoiled_problem<Forward, default_epsilon>("default_epsilon"),
                  faulty<Fault::next_row>("next_row"),
                  faulty<Fault::unmerged>("unmerged"),
                  on_parameter<&Forward::Tensors::gamma, One>("no_gamma"),
                  on_parameter<&Forward::Tensors::beta, wrong::Zero>("no_beta"),
                  wrong::spoiled_output<Forward, &Problem::m, VarianceForRstd>("variance_for_rstd"),
                  {.name = "keeps_statistics", .launch = keeps_statistics},
                  {.name = "does_not_wait", .launch = does_not_wait},
              })

}  // namespace ladder::layernorm
