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

  View(const Problem& problem, const UpsampleBackward::Tensors& t, void*)
      : p(problem), total(problem.small()), dy(static_cast<const T*>(t.dy)), dx(static_cast<T*>(t.dx)) {}

  __host__ __device__ long long count() const { return total; }

  // Of the larger image, the element under the smaller one's `small`, `i` rows and `j` columns into its window.
  __device__ long long large(long long small, int i, int j) const {
    const long long pixel = small / p.c;
    const long long row = pixel / (p.w / 2);
    return ((2 * row + i) * p.w + 2 * (pixel % (p.w / 2)) + j) * p.c + small % p.c;
  }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dx[i] = from_float<T>(to_float(v.dy[v.large(i, 0, 0)]) + to_float(v.dy[v.large(i, 0, 1)]) +
                            to_float(v.dy[v.large(i, 1, 0)]) + to_float(v.dy[v.large(i, 1, 1)]));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const UpsampleBackward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<UpsampleBackward, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The gradient averaged, as if upsampling had divided by four.
struct Averages {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dx[i] = from_float<T>(0.25f * (to_float(v.dy[v.large(i, 0, 0)]) + to_float(v.dy[v.large(i, 0, 1)]) +
                                     to_float(v.dy[v.large(i, 1, 0)]) + to_float(v.dy[v.large(i, 1, 1)])));
  }
};

// Each pixel's gradient from one of the four places that it went to.
struct OneOfFour {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dx[i] = v.dy[v.large(i, 0, 0)];
  }
};

// Of the two rows the upper one alone.
struct OneRow {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dx[i] = from_float<T>(to_float(v.dy[v.large(i, 0, 0)]) + to_float(v.dy[v.large(i, 0, 1)]));
  }
};

// Rounds between additions.
struct Bf16Sum {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    float sum = 0;
    for (int j = 0; j < 4; ++j)
      sum = to_float(from_float<__nv_bfloat16>(sum + to_float(v.dy[v.large(i, j / 2, j % 2)])));
    v.dx[i] = from_float<T>(sum);
  }
};

}  // namespace

LADDER_CHEATS(UpsampleBackward, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "averages", .launch = launch_cheat<Averages>},
                  {.name = "one_of_four", .launch = launch_cheat<OneOfFour>},
                  {.name = "one_row", .launch = launch_cheat<OneRow>},
                  {.name = "bf16_sum", .launch = launch_cheat<Bf16Sum>},
              })

}  // namespace ladder::resample
