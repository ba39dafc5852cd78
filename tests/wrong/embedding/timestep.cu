#include "dev/embedding/angle.h"
#include "tests/wrong/wrong.h"

namespace ladder::embedding {
namespace {

// The layer's formula, with each step open to a spoiled one.
struct Honest {
  __device__ int image(int n) const { return n; }
  __device__ float angle(float t, int frequency, int half) const { return embedding::angle(t, frequency, half); }
  __device__ bool is_cosine(int c, int half) const { return c < half; }
  __device__ int frequency(int c, int half) const { return c % half; }
};

template <class Steps>
struct Spoiled {
  __device__ void operator()(const auto& v, long long i) const {
    const Steps steps{};
    const int half = v.p.c / 2;
    const int c = static_cast<int>(i % v.p.c);
    const int n = steps.image(static_cast<int>(i / v.p.c));
    const float t =
        v.p.real ? static_cast<const float*>(v.t.t)[n] : static_cast<float>(static_cast<const int*>(v.t.t)[n]);
    const float angle = steps.angle(t, steps.frequency(c, half), half);
    v.store(v.t.y, i, c >= 2 * half ? 0.0f : steps.is_cosine(c, half) ? cosf(angle) : sinf(angle));
  }
};

template <class Steps>
constexpr auto on_output = wrong::spoiled_output<Timestep, &Problem::elements, Spoiled<Steps>>;

// Sines, then cosines, as other models have them.
struct SineFirst : Honest {
  __device__ bool is_cosine(int c, int half) const { return c >= half; }
};

// Cosine and sine of each frequency side by side.
struct Interleaved : Honest {
  __device__ bool is_cosine(int c, int) const { return c % 2 == 0; }
  __device__ int frequency(int c, int) const { return c / 2; }
};

// A tenth of the longest period.
struct Period1000 : Honest {
  __device__ float angle(float t, int frequency, int half) const {
    return t * expf(-6.907755279f * static_cast<float>(frequency) / static_cast<float>(half));
  }
};

// Divides by half - 1, as the transformer's original does.
struct HalfLessOne : Honest {
  __device__ float angle(float t, int frequency, int half) const { return embedding::angle(t, frequency, half - 1); }
};

// One time step for the whole batch.
struct FirstImage : Honest {
  __device__ int image(int) const { return 0; }
};

// Rounds the angle: 999 rad to 1000.
struct Bf16Angle : Honest {
  __device__ float angle(float t, int frequency, int half) const {
    return to_float(from_float<__nv_bfloat16>(embedding::angle(t, frequency, half)));
  }
};

// Time steps from 0 to 1.
struct ScaledToOne : Honest {
  __device__ float angle(float t, int frequency, int half) const {
    return embedding::angle(t, frequency, half) / 1000.0f;
  }
};

}  // namespace

LADDER_CHEATS(Timestep, (std::vector<std::string>{"n5 c16", "n4 c33", "n3 c20 real"}),
              {
                  on_output<Honest>("honest"),
                  on_output<SineFirst>("sine_first"),
                  on_output<Interleaved>("interleaved"),
                  on_output<Period1000>("period_1000"),
                  on_output<HalfLessOne>("half_less_one"),
                  on_output<FirstImage>("first_image"),
                  on_output<Bf16Angle>("bf16_angle"),
                  on_output<ScaledToOne>("scaled_to_one"),
              })

}  // namespace ladder::embedding
