#include "dev/resample/resample.h"
#include "tests/wrong/wrong.h"

namespace ladder::resample {
namespace {

template <class Cheat>
constexpr auto on_output = wrong::spoiled_output<PoolBackward, &Problem::large, Cheat>;

// All of the gradient to each of four pixels.
struct NoQuarter {
  __device__ void operator()(const auto& v, long long i) const { v.store(v.t.dx, i, 4.0f * v.load(v.t.dx, i)); }
};

// Half of it, as of a pooling along one axis.
struct Half {
  __device__ void operator()(const auto& v, long long i) const { v.store(v.t.dx, i, 2.0f * v.load(v.t.dx, i)); }
};

// All of it to the upper left pixel.
struct OneOfFour {
  __device__ void operator()(const auto& v, long long i) const {
    const long long pixel = i / v.p.c;
    const bool upper_left = pixel / v.p.w % 2 == 0 && pixel % v.p.w % 2 == 0;
    v.store(v.t.dx, i, upper_left ? 4.0f * v.load(v.t.dx, i) : 0.0f);
  }
};

// From the pixel to the right, where there is one.
struct NextColumn {
  __device__ void operator()(const auto& v, long long i) const {
    const long long pixel = i / v.p.c;
    const long long column = pixel % v.p.w / 2;
    const long long next = column + 1 < v.p.w / 2 ? column + 1 : column;
    const long long row = pixel / v.p.w / 2;
    v.store(v.t.dx, i, 0.25f * v.load(v.t.dy, (row * (v.p.w / 2) + next) * v.p.c + i % v.p.c));
  }
};

}  // namespace

LADDER_CHEATS(PoolBackward, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  wrong::honest<PoolBackward>(),
                  on_output<NoQuarter>("no_quarter"),
                  on_output<Half>("half"),
                  on_output<OneOfFour>("one_of_four"),
                  on_output<NextColumn>("next_column"),
              })

}  // namespace ladder::resample
