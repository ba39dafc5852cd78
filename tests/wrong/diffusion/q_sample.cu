#include "dev/diffusion/gaussian.h"
#include "tests/wrong/wrong.h"

namespace ladder::diffusion {
namespace {

constexpr int timesteps(const Problem&) { return kTimesteps; }

template <class Cheat>
constexpr auto on_table = wrong::spoiled_input<QSample, &QSample::Tensors::table, timesteps, Cheat>;
template <class Cheat>
constexpr auto on_t = wrong::spoiled_input<QSample, &QSample::Tensors::t, &Problem::n, Cheat>;
template <class Cheat>
constexpr auto on_output = wrong::spoiled_output<QSample, &Problem::elements, Cheat>;

// More noise at the beginning, less at the end.
struct WeightsExchanged {
  __device__ Diffused operator()(const auto& v, long long t) const {
    return {.signal = v.t.table[t].noise, .noise = v.t.table[t].signal};
  }
};

// Weights without their roots.
struct Variances {
  __device__ Diffused operator()(const auto& v, long long t) const {
    const Diffused at = v.t.table[t];
    return {.signal = at.signal * at.signal, .noise = at.noise * at.noise};
  }
};

// The first image's for all.
struct OneTimeStep {
  __device__ int operator()(const auto& v, long long) const { return v.t.t[0]; }
};

// One late: t counts from 1.
struct NextTimeStep {
  __device__ int operator()(const auto& v, long long n) const {
    return v.t.t[n] + 1 < kTimesteps ? v.t.t[n] + 1 : kTimesteps - 1;
  }
};

// Stores the noise as it was added.
struct ScaledNoise {
  __device__ void operator()(const auto& v, long long i) const {
    v.t.noise[i] *= v.t.table[v.t.t[i / v.p.c / (v.p.h * v.p.w)]].noise;
  }
};

// Trains on noise that it did not add.
struct OtherNoise {
  __device__ void operator()(const auto& v, long long i) const {
    const auto image = static_cast<unsigned>(v.p.h * v.p.w * v.p.c);
    v.t.noise[i] = normal(v.t.philox, image, static_cast<unsigned>(i) ^ 1);
  }
};

}  // namespace

LADDER_CHEATS(QSample, (std::vector<std::string>{"n3 h4 w4 c3", "n4 h3 w5 c1 cosine"}),
              {
                  wrong::honest<QSample>(),
                  on_table<WeightsExchanged>("weights_exchanged"),
                  on_t<OneTimeStep>("one_time_step"),
                  on_t<NextTimeStep>("next_time_step"),
                  on_table<Variances>("variances"),
                  on_output<ScaledNoise>("scaled_noise"),
                  on_output<OtherNoise>("other_noise"),
              })

}  // namespace ladder::diffusion
