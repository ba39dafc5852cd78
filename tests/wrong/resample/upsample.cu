#include "dev/resample/resample.h"
#include "tests/wrong/wrong.h"

namespace ladder::resample {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* x;
  T* y;

  View(const Problem& problem, const Upsample::Tensors& t, void*)
      : p(problem), total(problem.large()), x(static_cast<const T*>(t.x)), y(static_cast<T*>(t.y)) {}

  __host__ __device__ long long count() const { return total; }

  // Of the smaller image, the element over the larger one's `large`.
  __device__ long long small(long long large) const {
    const long long pixel = large / p.c;
    return (pixel / p.w / 2 * (p.w / 2) + pixel % p.w / 2) * p.c + large % p.c;
  }
  __device__ long long row(long long large) const { return large / p.c / p.w; }
  __device__ long long column(long long large) const { return large / p.c % p.w; }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = v.x[v.small(i)];
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Upsample::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Upsample, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// Repeats the image instead of its pixels.
struct Tiles {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long pixel = v.row(i) / 2 * (v.p.w / 2) + v.column(i) % (v.p.w / 2);
    v.y[i] = v.x[pixel * v.p.c + i % v.p.c];
  }
};

// Doubles rows, and takes every column from the left half.
struct RowsAlone {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = v.x[(v.row(i) / 2 * (v.p.w / 2) + v.column(i) / 4) * v.p.c + i % v.p.c];
  }
};

// A quarter of each, as the gradient of pooling has it.
struct Quarter {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(0.25f * to_float(v.x[v.small(i)]));
  }
};

// Leaves three of four pixels zero.
struct ZerosBetween {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = v.row(i) % 2 == 0 && v.column(i) % 2 == 0 ? v.x[v.small(i)] : from_float<T>(0.0f);
  }
};

}  // namespace

LADDER_CHEATS(Upsample, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "tiles", .launch = launch_cheat<Tiles>},
                  {.name = "rows_alone", .launch = launch_cheat<RowsAlone>},
                  {.name = "quarter", .launch = launch_cheat<Quarter>},
                  {.name = "zeros_between", .launch = launch_cheat<ZerosBetween>},
              })

}  // namespace ladder::resample
