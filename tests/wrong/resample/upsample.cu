#include "dev/resample/resample.h"
#include "tests/wrong/wrong.h"

namespace ladder::resample {
namespace {

enum class Fault {
  none,
  tiles,          // repeats the image instead of its pixels
  rows_alone,     // doubles rows, and takes every column from the left half
  quarter,        // a quarter of each, as the gradient of pooling has it
  zeros_between,  // leaves three of four pixels zero
};

template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long i) const {
    const long long pixel = i / v.p.c;
    const long long row = pixel / v.p.w;
    const int columns = v.p.w / 2;  // of x
    const long long column = pixel % v.p.w;
    long long from = column / 2;
    if (kFault == Fault::tiles) from = column % columns;
    if (kFault == Fault::rows_alone) from = column / 4;
    float x = v.load(v.t.x, (row / 2 * columns + from) * v.p.c + i % v.p.c);
    if (kFault == Fault::quarter) x *= 0.25f;
    if (kFault == Fault::zeros_between && (row % 2 != 0 || column % 2 != 0)) x = 0;
    v.store(v.t.y, i, x);
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Upsample, &Problem::large, Faulty<kFault>>;

}  // namespace

LADDER_CHEATS(Upsample, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::tiles>("tiles"),
                  faulty<Fault::rows_alone>("rows_alone"),
                  faulty<Fault::quarter>("quarter"),
                  faulty<Fault::zeros_between>("zeros_between"),
              })

}  // namespace ladder::resample
