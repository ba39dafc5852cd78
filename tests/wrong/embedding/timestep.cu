#include "dev/embedding/angle.h"
#include "tests/wrong/wrong.h"

namespace ladder::embedding {
namespace {

enum class Fault {
  none,
  sine_first,     // sines, then cosines, as other models have them
  interleaved,    // cosine and sine of each frequency side by side
  period_1000,    // a tenth of the longest period
  half_less_one,  // divides by half - 1, as the transformer's original does
  first_image,    // one time step for the whole batch
  bf16_angle,     // rounds the angle: 999 rad to 1000
  scaled_to_one,  // time steps from 0 to 1
};

template <Fault kFault>
__device__ float angle_of(float t, int frequency, int half) {
  if (kFault == Fault::period_1000) {
    return t * expf(-6.907755279f * static_cast<float>(frequency) / static_cast<float>(half));
  }
  const float right = angle(t, frequency, kFault == Fault::half_less_one ? half - 1 : half);
  if (kFault == Fault::bf16_angle) return to_float(from_float<__nv_bfloat16>(right));
  return kFault == Fault::scaled_to_one ? right / 1000.0f : right;
}

template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long i) const {
    const int half = v.p.c / 2;
    const int c = static_cast<int>(i % v.p.c);
    const long long n = kFault == Fault::first_image ? 0 : i / v.p.c;
    const float t =
        v.p.real ? static_cast<const float*>(v.t.t)[n] : static_cast<float>(static_cast<const int*>(v.t.t)[n]);
    const bool pairs = kFault == Fault::interleaved;
    const bool is_cosine = pairs ? c % 2 == 0 : (c < half) != (kFault == Fault::sine_first);
    const float angle = angle_of<kFault>(t, pairs ? c / 2 : c % half, half);
    v.store(v.t.y, i, c >= 2 * half ? 0.0f : is_cosine ? cosf(angle) : sinf(angle));
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Timestep, &Problem::elements, Faulty<kFault>>;

}  // namespace

LADDER_CHEATS(Timestep, (std::vector<std::string>{"n5 c16", "n4 c33", "n3 c20 real"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::sine_first>("sine_first"),
                  faulty<Fault::interleaved>("interleaved"),
                  faulty<Fault::period_1000>("period_1000"),
                  faulty<Fault::half_less_one>("half_less_one"),
                  faulty<Fault::first_image>("first_image"),
                  faulty<Fault::bf16_angle>("bf16_angle"),
                  faulty<Fault::scaled_to_one>("scaled_to_one"),
              })

}  // namespace ladder::embedding
