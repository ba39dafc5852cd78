#include "tests/wrong/policy/network.h"

namespace ladder::policy {
namespace {

constexpr Faults kNoFault;
constexpr Faults kFilmFirst{.film_first = true};
constexpr Faults kNoIdentity{.no_identity = true};
constexpr Faults kNoResidualConv{.no_residual_conv = true};
constexpr Faults kLengthOnly{.length_only = true};
constexpr Faults kNoMish{.no_mish = true};
constexpr Faults kGroupsOfLast{.groups_of_last = true};

std::int64_t table_numbers(const Problem& p) { return std::int64_t{p.steps} * network_of(p).film_row; }
std::int64_t film_numbers(const Problem& p) { return std::int64_t{p.n} * network_of(p).film_row; }

// Read the previous step's row, as a captured graph with a fixed row would.
struct RowBefore {
  __device__ long long operator()(const Problem& p, long long i, long long count) const {
    const long long row = count / p.steps;
    return (i + count - row) % count;
  }
};

template <auto kInput, class Index>
struct From {
  __device__ float operator()(const auto& v, long long i) const { return (v.t.*kInput)[Index{}(v.p, i, v.count())]; }
};

template <class Index>
constexpr auto moved_table =
    wrong::spoiled_input<Step, &Step::Tensors::film_table, table_numbers, From<&Step::Tensors::film_table, Index>>;
template <class Index>
constexpr auto moved_film =
    wrong::spoiled_input<Step, &Step::Tensors::film, film_numbers, From<&Step::Tensors::film, Index>>;

// Use the first sample's observation for all samples.
struct FirstSample {
  __device__ long long operator()(const Problem& p, long long i, long long count) const { return i % (count / p.n); }
};

// Ignore the observation.
struct NoFilm {
  __device__ float operator()(const auto&, long long) const { return 0.0f; }
};

// Add noise at the last step, too.
struct NoiseAtLast {
  __device__ diffusion::StepCoefficients operator()(const auto& v, long long row) const {
    diffusion::StepCoefficients s = v.t.table[row];
    if (row == v.p.steps - 1) s.sigma = 0.05f;
    return s;
  }
};

// Use the next step's coefficients.
struct NextRow {
  __device__ diffusion::StepCoefficients operator()(const auto& v, long long row) const {
    return v.t.table[(row + 1) % v.p.steps];
  }
};

template <class Change>
constexpr auto on_table = wrong::spoiled_input<Step, &Step::Tensors::table, &Problem::steps, Change>;

// Copy weights in another order: within each run of `run` rows, rows are reversed or exchanged.
struct MoveNumbers {
  void* to;
  const void* from;
  int begin;
  int rows;
  int width;  // numbers of a row
  int run;    // rows of a run
  int step;   // row r of a run comes from row r ^ step, or from run - 1 - r if step is 0

  __device__ void operator()(const auto& v, long long i) const {
    const long long row = i / width;
    const long long in_run = row % run;
    const long long other = step > 0 ? in_run ^ step : run - 1 - in_run;
    v.store(to, begin + i, v.load(from, begin + (row - in_run + other) * width + i % width));
  }
};

struct CopyWeights {
  void* to;
  __device__ void operator()(const auto& v, long long i) const { v.store(to, i, v.load(v.t.weights, i)); }
};

// Reorder the weights' taps: phases exchanged in transposed stages (kTransposed), else taps reversed in the other
// stages.
template <bool kTransposed>
void other_taps(const Problem& p, const Step::Tensors& t, void* workspace, Stream stream) {
  const Network network = network_of(p);
  Step::Tensors others = t;
  void* const weights = wrong::room_for_copies<Step>(p, workspace);
  others.weights = weights;
  wrong::launch_each<Step>(p, t, stream, network.weights, CopyWeights{weights});
  for (int at = 0; at < network.count; ++at) {
    const Stage& s = network.stages[at];
    if (s.transposed != kTransposed || s.taps == 1) continue;
    wrong::launch_each<Step>(
        p, t, stream, std::int64_t{s.k} * s.taps * s.c,
        MoveNumbers{weights, t.weights, s.weights, s.k * s.taps, s.c, s.taps, kTransposed ? 1 : 0});
  }
  wrong::launch_honest<Step>(p, others, workspace, stream);
}

// Exchange scales and shifts of one residual block in every row.
struct Exchange {
  float* to;
  const float* from;
  int row;
  int film;
  int k;
  __device__ void operator()(const auto&, long long i) const {
    const long long at = i / (2 * k) * row + film;
    to[at + i % (2 * k)] = from[at + (i + k) % (2 * k)];
  }
};

// Exchange scales and shifts of each residual block, in the table and in each sample's row.
void scale_for_shift(const Problem& p, const Step::Tensors& t, void* workspace, Stream stream) {
  const Network network = network_of(p);
  Step::Tensors others = t;
  auto* const table = static_cast<float*>(wrong::room_for_copies<Step>(p, workspace));
  auto* const film = table + table_numbers(p);
  others.film_table = table;
  others.film = film;
  for (int at = 0; at < network.count; ++at) {
    const Stage& s = network.stages[at];
    if (s.film == kNone) continue;
    const std::int64_t width = 2 * s.k;
    wrong::launch_each<Step>(p, t, stream, p.steps * width,
                             Exchange{table, t.film_table, network.film_row, s.film, s.k});
    wrong::launch_each<Step>(p, t, stream, p.n * width, Exchange{film, t.film, network.film_row, s.film, s.k});
  }
  wrong::launch_honest<Step>(p, others, workspace, stream);
}

}  // namespace

LADDER_CHEATS(Step,
              (std::vector<std::string>{"n2 l8 d2 dims16,24 taps3 groups4 steps3 ddpm",
                                        "n2 l8 d3 dims8,16 taps5 groups8 steps2 ddim",
                                        "n1 l8 d2 dims8,16 taps3 groups4 steps1 ddpm"}),
              {
                  {.name = "honest", .launch = run_network<kNoFault>},
                  {.name = "film_before_normalisation", .launch = run_network<kFilmFirst>},
                  {.name = "no_identity", .launch = run_network<kNoIdentity>},
                  {.name = "no_residual_conv", .launch = run_network<kNoResidualConv>},
                  {.name = "statistics_over_length", .launch = run_network<kLengthOnly>},
                  {.name = "no_last_mish", .launch = run_network<kNoMish>},
                  {.name = "groups_in_last_block", .launch = run_network<kGroupsOfLast>},
                  moved_table<RowBefore>("stale_film_row"),
                  moved_film<FirstSample>("film_of_first_sample"),
                  wrong::spoiled_input<Step, &Step::Tensors::film, film_numbers, NoFilm>("no_observation"),
                  {.name = "scale_for_shift", .launch = scale_for_shift},
                  {.name = "taps_flipped", .launch = other_taps<false>},
                  {.name = "phases_exchanged", .launch = other_taps<true>},
                  on_table<NoiseAtLast>("noise_at_last_step"),
                  on_table<NextRow>("next_row"),
              })

}  // namespace ladder::policy
