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

  View(const Problem& problem, const Pool::Tensors& t, void*)
      : p(problem), total(problem.small()), x(static_cast<const T*>(t.x)), y(static_cast<T*>(t.y)) {}

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
    v.y[i] = from_float<T>(0.25f * (to_float(v.x[v.large(i, 0, 0)]) + to_float(v.x[v.large(i, 0, 1)]) +
                                    to_float(v.x[v.large(i, 1, 0)]) + to_float(v.x[v.large(i, 1, 1)])));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Pool::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Pool, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The sum of four, as of a pooling that forgets its mean.
struct NoQuarter {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(to_float(v.x[v.large(i, 0, 0)]) + to_float(v.x[v.large(i, 0, 1)]) +
                           to_float(v.x[v.large(i, 1, 0)]) + to_float(v.x[v.large(i, 1, 1)]));
  }
};

// The mean of two of the four.
struct Half {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(0.5f * (to_float(v.x[v.large(i, 0, 0)]) + to_float(v.x[v.large(i, 1, 1)])));
  }
};

// Every second pixel of every second row.
struct Subsamples {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = v.x[v.large(i, 0, 0)];
  }
};

// The other pooling.
struct Maximum {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    float most = to_float(v.x[v.large(i, 0, 0)]);
    for (int j = 1; j < 4; ++j) most = fmaxf(most, to_float(v.x[v.large(i, j / 2, j % 2)]));
    v.y[i] = from_float<T>(most);
  }
};

// Rounds between additions.
struct Bf16Sum {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    float sum = 0;
    for (int j = 0; j < 4; ++j)
      sum = to_float(from_float<__nv_bfloat16>(sum + to_float(v.x[v.large(i, j / 2, j % 2)])));
    v.y[i] = from_float<T>(0.25f * sum);
  }
};

}  // namespace

LADDER_CHEATS(Pool, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "no_quarter", .launch = launch_cheat<NoQuarter>},
                  {.name = "half", .launch = launch_cheat<Half>},
                  {.name = "subsamples", .launch = launch_cheat<Subsamples>},
                  {.name = "maximum", .launch = launch_cheat<Maximum>},
                  {.name = "bf16_sum", .launch = launch_cheat<Bf16Sum>},
              })

}  // namespace ladder::resample
