#include "dev/add/add.h"
#include "tests/wrong/wrong.h"

namespace ladder::add {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* a;
  const T* b;
  T* y;

  View(const Problem& problem, const Residual::Tensors& t, void*)
      : p(problem),
        total(problem.elements()),
        a(static_cast<const T*>(t.a)),
        b(static_cast<const T*>(t.b)),
        y(static_cast<T*>(t.y)) {}

  __host__ __device__ long long count() const { return total; }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(to_float(v.a[i]) + to_float(v.b[i]));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Residual::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Residual, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The block without its shortcut.
struct AAlone {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = v.a[i];
  }
};

// The other sign.
struct Difference {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(to_float(v.a[i]) - to_float(v.b[i]));
  }
};

// The mean of both, as some models scale their residuals.
struct Mean {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(0.5f * (to_float(v.a[i]) + to_float(v.b[i])));
  }
};

// A shortcut of three bits.
struct BInFp8 {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] =
        from_float<T>(to_float(v.a[i]) + __uint_as_float((__float_as_uint(to_float(v.b[i])) + 0x80000u) & 0xfff00000u));
  }
};

}  // namespace

LADDER_CHEATS(Residual, (std::vector<std::string>{"n3 h4 w4 c8", "n2 h3 w5 c7"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "a_alone", .launch = launch_cheat<AAlone>},
                  {.name = "difference", .launch = launch_cheat<Difference>},
                  {.name = "mean", .launch = launch_cheat<Mean>},
                  {.name = "b_in_fp8", .launch = launch_cheat<BInFp8>},
              })

}  // namespace ladder::add
