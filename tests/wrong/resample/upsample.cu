#include "dev/resample/resample.h"
#include "tests/wrong/wrong.h"

namespace ladder::resample {
namespace {

// Columns taken from elsewhere: Column{}(column of y, columns of x).
template <class Column>
struct From {
  __device__ void operator()(const auto& v, long long i) const {
    const long long pixel = i / v.p.c;
    const long long row = pixel / v.p.w / 2;
    const int column = Column{}(static_cast<int>(pixel % v.p.w), v.p.w / 2);
    v.store(v.t.y, i, v.load(v.t.x, (row * (v.p.w / 2) + column) * v.p.c + i % v.p.c));
  }
};

template <class Cheat>
constexpr auto on_output = wrong::spoiled_output<Upsample, &Problem::large, Cheat>;

// Repeats the image instead of its pixels.
struct Tiles {
  __device__ int operator()(int column, int columns) const { return column % columns; }
};

// Doubles rows, and takes every column from the left half.
struct RowsAlone {
  __device__ int operator()(int column, int) const { return column / 4; }
};

// A quarter of each, as the gradient of pooling has it.
struct Quarter {
  __device__ void operator()(const auto& v, long long i) const { v.store(v.t.y, i, 0.25f * v.load(v.t.y, i)); }
};

// Leaves three of four pixels zero.
struct ZerosBetween {
  __device__ void operator()(const auto& v, long long i) const {
    const long long pixel = i / v.p.c;
    if (pixel / v.p.w % 2 != 0 || pixel % v.p.w % 2 != 0) v.store(v.t.y, i, 0.0f);
  }
};

}  // namespace

LADDER_CHEATS(Upsample, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  wrong::honest<Upsample>(),
                  on_output<From<Tiles>>("tiles"),
                  on_output<From<RowsAlone>>("rows_alone"),
                  on_output<Quarter>("quarter"),
                  on_output<ZerosBetween>("zeros_between"),
              })

}  // namespace ladder::resample
