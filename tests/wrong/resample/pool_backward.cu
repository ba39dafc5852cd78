#include "dev/resample/resample.h"
#include "tests/wrong/wrong.h"

namespace ladder::resample {
namespace {

enum class Fault {
  none,
  no_quarter,   // all of the gradient to each of four pixels
  half,         // half of it, as of a pooling along one axis
  one_of_four,  // all of it to the upper left pixel
  next_column,  // from the pixel to the right, where there is one
};

template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long i) const {
    const long long pixel = i / v.p.c;
    const long long row = pixel / v.p.w;
    const long long column = pixel % v.p.w;
    const bool moved = kFault == Fault::next_column && column / 2 + 1 < v.p.w / 2;
    const float dy = v.load(v.t.dy, (row / 2 * (v.p.w / 2) + column / 2 + moved) * v.p.c + i % v.p.c);
    float fraction = kFault == Fault::no_quarter ? 1.0f : kFault == Fault::half ? 0.5f : 0.25f;
    if (kFault == Fault::one_of_four) fraction = row % 2 == 0 && column % 2 == 0 ? 1.0f : 0.0f;
    v.store(v.t.dx, i, fraction * dy);
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<PoolBackward, &Problem::large, Faulty<kFault>>;

}  // namespace

LADDER_CHEATS(PoolBackward, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::no_quarter>("no_quarter"),
                  faulty<Fault::half>("half"),
                  faulty<Fault::one_of_four>("one_of_four"),
                  faulty<Fault::next_column>("next_column"),
              })

}  // namespace ladder::resample
