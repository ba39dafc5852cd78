#include "dev/diffusion/gaussian.h"
#include "tests/wrong/wrong.h"

namespace ladder::diffusion {
namespace {

constexpr int philox_words(const Problem&) { return 3; }

// Elements of an image; Problem's own function is the host's.
__device__ unsigned image_of(const Problem& p) { return static_cast<unsigned>(p.h * p.w * p.c); }

template <class Cheat>
constexpr auto on_philox = wrong::spoiled_input<Noise, &Noise::Tensors::philox, philox_words, Cheat>;
template <class Cheat>
constexpr auto on_output = wrong::spoiled_output<Noise, &Problem::elements, Cheat>;

// The same numbers whatever the offset.
struct RepeatsBetweenSteps {
  __device__ std::int64_t operator()(const auto& v, long long i) const { return i == 1 ? 0 : v.t.philox[i]; }
};

// The same numbers whatever the seed.
struct OneSeed {
  __device__ std::int64_t operator()(const auto& v, long long i) const { return i == 0 ? 0 : v.t.philox[i]; }
};

// The same numbers for every batch.
struct RepeatsBetweenBatches {
  __device__ std::int64_t operator()(const auto& v, long long i) const { return i == 2 ? 0 : v.t.philox[i]; }
};

// Counts batches of n images from the first one's number on, not images.
struct CountsBatches {
  __device__ std::int64_t operator()(const auto& v, long long i) const {
    return i == 2 ? v.t.philox[i] * v.p.n : v.t.philox[i];
  }
};

// Counts elements of an image, so that all images have the same noise.
struct EqualImages {
  __device__ void operator()(const auto& v, long long i) const {
    const unsigned image = image_of(v.p);
    if (i >= image) v.t.noise[i] = v.t.noise[i % image];
  }
};

// Adds the offset to the element: a step's numbers are the last one's, moved.
struct ShiftedByAStep {
  __device__ void operator()(const auto& v, long long i) const {
    const long long j = i + 4 * v.t.philox[1];
    const std::int64_t philox[3] = {v.t.philox[0], 0, v.t.philox[2]};
    v.t.noise[i] = normal(philox, image_of(v.p), static_cast<unsigned>(j));
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
    const auto first = static_cast<std::uint64_t>(v.t.philox[2]) * image_of(v.p);
    const PhiloxWords r = philox4x32_10(first + i, v.t.philox[1], v.t.philox[0]);
    v.t.noise[i] = box_muller(r.word[0], r.word[1]).x;
  }
};

// Uniform, of the same variance.
struct Uniform {
  __device__ void operator()(const auto& v, long long i) const {
    const unsigned image = image_of(v.p), element = static_cast<unsigned>(i) % image;
    const std::uint64_t quads = (v.t.philox[2] + i / image) * quads_of(image);
    const PhiloxWords r = philox4x32_10(quads + element / 4, v.t.philox[1], v.t.philox[0]);
    v.t.noise[i] = (__uint2float_rn(r.word[element % 4]) * 0x1p-32f - 0.5f) * 3.4641016f;
  }
};

}  // namespace

LADDER_CHEATS(Noise, (std::vector<std::string>{"n2 h4 w4 c3", "n3 h3 w5 c1"}),
              {
                  wrong::honest<Noise>(),
                  on_philox<RepeatsBetweenSteps>("repeats_between_steps"),
                  on_philox<OneSeed>("one_seed"),
                  on_philox<RepeatsBetweenBatches>("repeats_between_batches"),
                  on_philox<CountsBatches>("counts_batches"),
                  on_output<EqualImages>("equal_images"),
                  on_output<ShiftedByAStep>("shifted_by_a_step"),
                  on_output<EqualQuads>("equal_quads"),
                  on_output<CosinesAlone>("cosines_alone"),
                  on_output<Uniform>("uniform"),
              })

}  // namespace ladder::diffusion
