#include "dev/concat/concat.h"
#include "tests/wrong/wrong.h"

namespace ladder::concat {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* dy;
  const T* e;
  T* da;
  T* db;

  View(const Problem& problem, const SplitAdd::Tensors& t, void*)
      : p(problem),
        total(problem.elements()),
        dy(static_cast<const T*>(t.dy)),
        e(static_cast<const T*>(t.e)),
        da(static_cast<T*>(t.da)),
        db(static_cast<T*>(t.db)) {}

  __host__ __device__ long long count() const { return total; }

  __device__ long long pixel(long long i) const { return i / (p.c + p.k); }
  __device__ long long channel(long long i) const { return i % (p.c + p.k); }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    const long long at = v.pixel(i) * v.p.k + j - v.p.c;  // of db
    if (j < v.p.c) {
      v.da[v.pixel(i) * v.p.c + j] = v.dy[i];
    } else {
      v.db[at] = from_float<T>(to_float(v.dy[i]) + to_float(v.e[at]));
    }
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const SplitAdd::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<SplitAdd, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// Splits, and adds nothing.
struct ForgetsTheSkip {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    const long long at = v.pixel(i) * v.p.k + j - v.p.c;  // of db
    if (j < v.p.c) {
      v.da[v.pixel(i) * v.p.c + j] = v.dy[i];
    } else {
      v.db[at] = v.dy[i];
    }
  }
};

// The skip's other gradient instead of the sum.
struct Replaces {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    const long long at = v.pixel(i) * v.p.k + j - v.p.c;  // of db
    if (j < v.p.c) {
      v.da[v.pixel(i) * v.p.c + j] = v.dy[i];
    } else {
      v.db[at] = v.e[at];
    }
  }
};

// As where a tape accumulates what is added here already.
struct AddsTwice {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    const long long at = v.pixel(i) * v.p.k + j - v.p.c;  // of db
    if (j < v.p.c) {
      v.da[v.pixel(i) * v.p.c + j] = v.dy[i];
    } else {
      v.db[at] = from_float<T>(to_float(v.dy[i]) + 2.0f * to_float(v.e[at]));
    }
  }
};

// The sum on the wrong side.
struct AddsToA {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    const long long at = v.pixel(i) * v.p.k + j - v.p.c;  // of db
    if (j < v.p.c) {
      v.da[v.pixel(i) * v.p.c + j] = from_float<T>(to_float(v.dy[i]) + to_float(v.e[v.pixel(i) * v.p.k + j % v.p.k]));
    } else {
      v.db[at] = v.dy[i];
    }
  }
};

// One pixel's skip gradient for all.
struct FirstPixelsSkip {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    const long long at = v.pixel(i) * v.p.k + j - v.p.c;  // of db
    if (j < v.p.c) {
      v.da[v.pixel(i) * v.p.c + j] = v.dy[i];
    } else {
      v.db[at] = from_float<T>(to_float(v.dy[i]) + to_float(v.e[j - v.p.c]));
    }
  }
};

}  // namespace

LADDER_CHEATS(SplitAdd, (std::vector<std::string>{"n1 h4 w6 c8 k8", "n2 h3 w5 c5 k9"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "forgets_the_skip", .launch = launch_cheat<ForgetsTheSkip>},
                  {.name = "replaces", .launch = launch_cheat<Replaces>},
                  {.name = "adds_twice", .launch = launch_cheat<AddsTwice>},
                  {.name = "adds_to_a", .launch = launch_cheat<AddsToA>},
                  {.name = "first_pixels_skip", .launch = launch_cheat<FirstPixelsSkip>},
              })

}  // namespace ladder::concat
