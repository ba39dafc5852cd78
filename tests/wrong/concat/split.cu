#include "dev/concat/concat.h"
#include "tests/wrong/wrong.h"

namespace ladder::concat {
namespace {

// Calls the cheat for every element of dy, with its pixel and channel.
template <class Cheat>
struct Each {
  __device__ void operator()(const auto& v, long long i) const {
    Cheat{}(v, i, i / (v.p.c + v.p.k), static_cast<int>(i % (v.p.c + v.p.k)));
  }
};

template <class Cheat>
constexpr auto on_output = wrong::spoiled_output<Split, &Problem::elements, Each<Cheat>>;

// The first channels to b, the last to a.
struct Swapped {
  __device__ void operator()(const auto& v, long long i, long long pixel, int j) const {
    const bool to_b = j < v.p.k;
    v.store(to_b ? v.t.db : v.t.da, to_b ? pixel * v.p.k + j : pixel * v.p.c + j - v.p.k, v.load(v.t.dy, i));
  }
};

// The first pixels to a, the last to b.
struct OneBehindTheOther {
  __device__ void operator()(const auto& v, long long i, long long, int) const {
    const long long all_a = v.count() / (v.p.c + v.p.k) * v.p.c;
    v.store(i < all_a ? v.t.da : v.t.db, i < all_a ? i : i - all_a, v.load(v.t.dy, i));
  }
};

// b has the channels of a, as far as they go.
struct FirstToBoth {
  __device__ void operator()(const auto& v, long long i, long long pixel, int j) const {
    if (j < v.p.c) return;
    v.store(v.t.db, pixel * v.p.k + j - v.p.c, v.load(v.t.dy, i - j + (j - v.p.c) % v.p.c));
  }
};

// Half of the gradient to each.
struct Halves {
  __device__ void operator()(const auto& v, long long i, long long pixel, int j) const {
    const bool to_a = j < v.p.c;
    v.store(to_a ? v.t.da : v.t.db, to_a ? pixel * v.p.c + j : pixel * v.p.k + j - v.p.c, 0.5f * v.load(v.t.dy, i));
  }
};

}  // namespace

LADDER_CHEATS(Split, (std::vector<std::string>{"n1 h4 w6 c8 k8", "n2 h3 w5 c5 k9"}),
              {
                  wrong::honest<Split>(),
                  on_output<Swapped>("swapped"),
                  on_output<OneBehindTheOther>("one_behind_the_other"),
                  on_output<FirstToBoth>("first_to_both"),
                  on_output<Halves>("halves"),
              })

}  // namespace ladder::concat
