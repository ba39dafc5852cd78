#include "dev/concat/concat.h"
#include "tests/wrong/wrong.h"

namespace ladder::concat {
namespace {

enum class Fault {
  none,
  b_first,               // the skip connection first
  one_behind_the_other,  // all of a, then all of b: right for a single pixel
  a_again,               // a in b's place, as far as it goes
  b_begins_late,         // b from its second channel on
};

template <Fault kFault>
struct Faulty {
  static __device__ float element(const auto& v, long long i) {
    const int c = v.p.c;
    const int k = v.p.k;
    const long long pixel = i / (c + k);
    const int j = static_cast<int>(i % (c + k));
    if (kFault == Fault::b_first) return j < k ? v.load(v.t.b, pixel * k + j) : v.load(v.t.a, pixel * c + j - k);
    if (kFault == Fault::a_again) return v.load(v.t.a, pixel * c + j % c);
    if (kFault == Fault::one_behind_the_other) {
      const long long all_a = v.count() / (c + k) * c;
      return i < all_a ? v.load(v.t.a, i) : v.load(v.t.b, i - all_a);
    }
    return j < c ? v.load(v.t.a, pixel * c + j)
                 : v.load(v.t.b, pixel * k + (j - c + (kFault == Fault::b_begins_late)) % k);
  }
  __device__ void operator()(const auto& v, long long i) const { v.store(v.t.y, i, element(v, i)); }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Join, &Problem::elements, Faulty<kFault>>;

}  // namespace

LADDER_CHEATS(Join, (std::vector<std::string>{"n1 h4 w6 c8 k8", "n2 h3 w5 c5 k9"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::b_first>("b_first"),
                  faulty<Fault::one_behind_the_other>("one_behind_the_other"),
                  faulty<Fault::a_again>("a_again"),
                  faulty<Fault::b_begins_late>("b_begins_late"),
              })

}  // namespace ladder::concat
