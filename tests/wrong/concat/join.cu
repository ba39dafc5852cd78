#include "dev/concat/concat.h"
#include "tests/wrong/wrong.h"

namespace ladder::concat {
namespace {

// Elements from elsewhere in y: Source{}(v, pixel, channel of y).
template <class Source>
struct Each {
  __device__ void operator()(const auto& v, long long i) const {
    v.store(v.t.y, i, Source{}(v, i / (v.p.c + v.p.k), static_cast<int>(i % (v.p.c + v.p.k))));
  }
};

template <class Source>
constexpr auto on_output = wrong::spoiled_output<Join, &Problem::elements, Each<Source>>;

// The skip connection first.
struct BFirst {
  __device__ float operator()(const auto& v, long long pixel, int j) const {
    return j < v.p.k ? v.load(v.t.b, pixel * v.p.k + j) : v.load(v.t.a, pixel * v.p.c + j - v.p.k);
  }
};

// All of a, then all of b: right for a single pixel.
struct OneBehindTheOther {
  __device__ float operator()(const auto& v, long long pixel, int j) const {
    const long long i = pixel * (v.p.c + v.p.k) + j;
    const long long all_a = v.count() / (v.p.c + v.p.k) * v.p.c;
    return i < all_a ? v.load(v.t.a, i) : v.load(v.t.b, i - all_a);
  }
};

// a in b's place, as far as it goes.
struct AAgain {
  __device__ float operator()(const auto& v, long long pixel, int j) const {
    return v.load(v.t.a, pixel * v.p.c + j % v.p.c);
  }
};

// b from its second channel on.
struct BBeginsLate {
  __device__ float operator()(const auto& v, long long pixel, int j) const {
    return j < v.p.c ? v.load(v.t.a, pixel * v.p.c + j) : v.load(v.t.b, pixel * v.p.k + (j - v.p.c + 1) % v.p.k);
  }
};

}  // namespace

LADDER_CHEATS(Join, (std::vector<std::string>{"n1 h4 w6 c8 k8", "n2 h3 w5 c5 k9"}),
              {
                  wrong::honest<Join>(),
                  on_output<BFirst>("b_first"),
                  on_output<OneBehindTheOther>("one_behind_the_other"),
                  on_output<AAgain>("a_again"),
                  on_output<BBeginsLate>("b_begins_late"),
              })

}  // namespace ladder::concat
