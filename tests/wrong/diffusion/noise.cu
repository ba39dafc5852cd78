#include "dev/diffusion/gaussian.h"
#include "tests/wrong/wrong.h"

namespace ladder::diffusion {
namespace {

constexpr int philox_words(const Problem&) { return 2; }

template <class Cheat>
constexpr auto on_philox = wrong::spoiled_input<Noise, &Noise::Tensors::philox, philox_words, Cheat>;
template <class Cheat>
constexpr auto on_output = wrong::spoiled_output<Noise, &Problem::elements, Cheat>;

// The same numbers whatever the offset.
struct RepeatsBetweenSteps {
  __device__ std::int64_t operator()(const auto& v, long long i) const { return i == 0 ? v.t.philox[0] : 0; }
};

// The same numbers whatever the seed.
struct OneSeed {
  __device__ std::int64_t operator()(const auto& v, long long i) const { return i == 0 ? 0 : v.t.philox[1]; }
};

// Counts elements of an image, so that all images have the same noise.
struct EqualImages {
  __device__ void operator()(const auto& v, long long i) const {
    const long long image = static_cast<long long>(v.p.h) * v.p.w * v.p.c;
    if (i >= image) v.t.noise[i] = v.t.noise[i % image];
  }
};

// Adds the offset to the element: a step's numbers are the last one's, moved.
struct ShiftedByAStep {
  __device__ void operator()(const auto& v, long long i) const {
    const long long j = i + 4 * v.t.philox[1];
    const std::int64_t philox[2] = {v.t.philox[0], 0};
    v.t.noise[i] = component(normals(philox, static_cast<unsigned>(j / 4)), static_cast<unsigned>(j % 4));
  }
};

// One number for four elements.
struct EqualQuads {
  __device__ void operator()(const auto& v, long long i) const {
    if (i % 4 != 0) v.t.noise[i] = v.t.noise[i / 4 * 4];
  }
};

// Throws the sine away, and counts on.
struct CosinesAlone {
  __device__ void operator()(const auto& v, long long i) const {
    const PhiloxWords r = philox4x32_10(i, v.t.philox[1], v.t.philox[0]);
    v.t.noise[i] = box_muller(r.word[0], r.word[1]).x;
  }
};

// Uniform, of the same variance.
struct Uniform {
  __device__ void operator()(const auto& v, long long i) const {
    const PhiloxWords r = philox4x32_10(i / 4, v.t.philox[1], v.t.philox[0]);
    v.t.noise[i] = (__uint2float_rn(r.word[i % 4]) * 0x1p-32f - 0.5f) * 3.4641016f;
  }
};

}  // namespace

LADDER_CHEATS(Noise, (std::vector<std::string>{"n2 h4 w4 c3", "n3 h3 w5 c1"}),
              {
                  wrong::honest<Noise>(),
                  on_philox<RepeatsBetweenSteps>("repeats_between_steps"),
                  on_philox<OneSeed>("one_seed"),
                  on_output<EqualImages>("equal_images"),
                  on_output<ShiftedByAStep>("shifted_by_a_step"),
                  on_output<EqualQuads>("equal_quads"),
                  on_output<CosinesAlone>("cosines_alone"),
                  on_output<Uniform>("uniform"),
              })

}  // namespace ladder::diffusion
