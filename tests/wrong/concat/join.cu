#include "dev/concat/concat.h"
#include "tests/wrong/wrong.h"

namespace ladder::concat {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* a;
  const T* b;
  T* y;

  View(const Problem& problem, const Join::Tensors& t, void*)
      : p(problem),
        total(problem.elements()),
        a(static_cast<const T*>(t.a)),
        b(static_cast<const T*>(t.b)),
        y(static_cast<T*>(t.y)) {}

  __host__ __device__ long long count() const { return total; }

  __device__ long long pixel(long long i) const { return i / (p.c + p.k); }
  __device__ long long channel(long long i) const { return i % (p.c + p.k); }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    v.y[i] = j < v.p.c ? v.a[v.pixel(i) * v.p.c + j] : v.b[v.pixel(i) * v.p.k + j - v.p.c];
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Join::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Join, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The skip connection first.
struct BFirst {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    v.y[i] = j < v.p.k ? v.b[v.pixel(i) * v.p.k + j] : v.a[v.pixel(i) * v.p.c + j - v.p.k];
  }
};

// All of a, then all of b: right for a single pixel.
struct OneBehindTheOther {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long all_a = v.count() / (v.p.c + v.p.k) * v.p.c;
    v.y[i] = i < all_a ? v.a[i] : v.b[i - all_a];
  }
};

// a in b's place, as far as it goes.
struct AAgain {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    v.y[i] = v.a[v.pixel(i) * v.p.c + j % v.p.c];
  }
};

// b from its second channel on.
struct BBeginsLate {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    v.y[i] = j < v.p.c ? v.a[v.pixel(i) * v.p.c + j] : v.b[v.pixel(i) * v.p.k + (j - v.p.c + 1) % v.p.k];
  }
};

}  // namespace

LADDER_CHEATS(Join, (std::vector<std::string>{"n1 h4 w6 c8 k8", "n2 h3 w5 c5 k9"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "b_first", .launch = launch_cheat<BFirst>},
                  {.name = "one_behind_the_other", .launch = launch_cheat<OneBehindTheOther>},
                  {.name = "a_again", .launch = launch_cheat<AAgain>},
                  {.name = "b_begins_late", .launch = launch_cheat<BBeginsLate>},
              })

}  // namespace ladder::concat
