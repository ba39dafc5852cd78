#include "dev/resample/resample.h"
#include "tests/wrong/wrong.h"

namespace ladder::resample {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* dy;
  T* dx;

  View(const Problem& problem, const PoolBackward::Tensors& t, void*)
      : p(problem), total(problem.large()), dy(static_cast<const T*>(t.dy)), dx(static_cast<T*>(t.dx)) {}

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
    v.dx[i] = from_float<T>(0.25f * to_float(v.dy[v.small(i)]));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const PoolBackward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<PoolBackward, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// All of the gradient to each of four pixels.
struct NoQuarter {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dx[i] = v.dy[v.small(i)];
  }
};

// Half of it, as of a pooling along one axis.
struct Half {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dx[i] = from_float<T>(0.5f * to_float(v.dy[v.small(i)]));
  }
};

// All of it to the upper left pixel.
struct OneOfFour {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dx[i] = v.row(i) % 2 == 0 && v.column(i) % 2 == 0 ? v.dy[v.small(i)] : from_float<T>(0.0f);
  }
};

// From the pixel to the right, where there is one.
struct NextColumn {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long right = v.column(i) / 2 + 1 < v.p.w / 2 ? v.p.c : 0;
    v.dx[i] = from_float<T>(0.25f * to_float(v.dy[v.small(i) + right]));
  }
};

}  // namespace

LADDER_CHEATS(PoolBackward, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "no_quarter", .launch = launch_cheat<NoQuarter>},
                  {.name = "half", .launch = launch_cheat<Half>},
                  {.name = "one_of_four", .launch = launch_cheat<OneOfFour>},
                  {.name = "next_column", .launch = launch_cheat<NextColumn>},
              })

}  // namespace ladder::resample
