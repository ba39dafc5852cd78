#include "dev/concat/concat.h"
#include "tests/wrong/wrong.h"

namespace ladder::concat {
namespace {

// Another sum in db: Sum{}(v, its part of dy, element and channel of db).
template <class Sum>
struct EachOfB {
  __device__ void operator()(const auto& v, long long i) const {
    const long long pixel = i / v.p.k;
    const int j = static_cast<int>(i % v.p.k);
    v.store(v.t.db, i, Sum{}(v, v.load(v.t.dy, pixel * (v.p.c + v.p.k) + v.p.c + j), i, j));
  }
};

constexpr long long elements_of_b(const Problem& p) { return static_cast<long long>(p.n) * p.h * p.w * p.k; }

template <class Sum>
constexpr auto on_db = wrong::spoiled_output<SplitAdd, elements_of_b, EachOfB<Sum>>;

// Splits, and adds nothing.
struct ForgetsTheSkip {
  __device__ float operator()(const auto&, float dy, long long, int) const { return dy; }
};

// The skip's other gradient instead of the sum.
struct Replaces {
  __device__ float operator()(const auto& v, float, long long i, int) const { return v.load(v.t.e, i); }
};

// As where a tape accumulates what is added here already.
struct AddsTwice {
  __device__ float operator()(const auto& v, float dy, long long i, int) const { return dy + 2.0f * v.load(v.t.e, i); }
};

// One pixel's skip gradient for all.
struct FirstPixelsSkip {
  __device__ float operator()(const auto& v, float dy, long long, int j) const { return dy + v.load(v.t.e, j); }
};

// The sum on the wrong side.
struct AddsToA {
  __device__ void operator()(const auto& v, long long i) const {
    const long long pixel = i / (v.p.c + v.p.k);
    const int j = static_cast<int>(i % (v.p.c + v.p.k));
    if (j < v.p.c) {
      v.store(v.t.da, pixel * v.p.c + j, v.load(v.t.dy, i) + v.load(v.t.e, pixel * v.p.k + j % v.p.k));
    } else {
      v.store(v.t.db, pixel * v.p.k + j - v.p.c, v.load(v.t.dy, i));
    }
  }
};

}  // namespace

LADDER_CHEATS(SplitAdd, (std::vector<std::string>{"n1 h4 w6 c8 k8", "n2 h3 w5 c5 k9"}),
              {
                  wrong::honest<SplitAdd>(),
                  on_db<ForgetsTheSkip>("forgets_the_skip"),
                  on_db<Replaces>("replaces"),
                  on_db<AddsTwice>("adds_twice"),
                  wrong::spoiled_output<SplitAdd, &Problem::elements, AddsToA>("adds_to_a"),
                  on_db<FirstPixelsSkip>("first_pixels_skip"),
              })

}  // namespace ladder::concat
