#include "dev/concat/concat.h"
#include "tests/wrong/wrong.h"

namespace ladder::concat {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* dy;
  T* da;
  T* db;

  View(const Problem& problem, const Split::Tensors& t, void*)
      : p(problem),
        total(problem.elements()),
        dy(static_cast<const T*>(t.dy)),
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
      v.db[at] = v.dy[i];
    }
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Split::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Split, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The first channels to b, the last to a.
struct Swapped {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    if (j < v.p.k) {
      v.db[v.pixel(i) * v.p.k + j] = v.dy[i];
    } else {
      v.da[v.pixel(i) * v.p.c + j - v.p.k] = v.dy[i];
    }
  }
};

// The first pixels to a, the last to b.
struct OneBehindTheOther {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long all_a = v.count() / (v.p.c + v.p.k) * v.p.c;
    if (i < all_a) {
      v.da[i] = v.dy[i];
    } else {
      v.db[i - all_a] = v.dy[i];
    }
  }
};

// b has the channels of a, as far as they go.
struct FirstToBoth {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    const long long at = v.pixel(i) * v.p.k + j - v.p.c;  // of db
    if (j < v.p.c) {
      v.da[v.pixel(i) * v.p.c + j] = v.dy[i];
    } else {
      v.db[at] = v.dy[v.pixel(i) * (v.p.c + v.p.k) + (j - v.p.c) % v.p.c];
    }
  }
};

// Half of the gradient to each.
struct Halves {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = v.channel(i);
    const long long at = v.pixel(i) * v.p.k + j - v.p.c;  // of db
    if (j < v.p.c) {
      v.da[v.pixel(i) * v.p.c + j] = from_float<T>(0.5f * to_float(v.dy[i]));
    } else {
      v.db[at] = from_float<T>(0.5f * to_float(v.dy[i]));
    }
  }
};

}  // namespace

LADDER_CHEATS(Split, (std::vector<std::string>{"n1 h4 w6 c8 k8", "n2 h3 w5 c5 k9"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "swapped", .launch = launch_cheat<Swapped>},
                  {.name = "one_behind_the_other", .launch = launch_cheat<OneBehindTheOther>},
                  {.name = "first_to_both", .launch = launch_cheat<FirstToBoth>},
                  {.name = "halves", .launch = launch_cheat<Halves>},
              })

}  // namespace ladder::concat
