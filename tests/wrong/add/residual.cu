#include "dev/add/add.h"
#include "tests/wrong/wrong.h"

namespace ladder::add {
namespace {

enum class Fault {
  none,
  a_alone,     // the block without its shortcut
  difference,  // the other sign
  mean,        // the mean of both, as some models scale their residuals
  b_in_fp8,    // a shortcut of three bits
};

__device__ float sum(Fault fault, float a, float b) {
  if (fault == Fault::a_alone) return a;
  if (fault == Fault::difference) return a - b;
  if (fault == Fault::mean) return 0.5f * (a + b);
  if (fault == Fault::b_in_fp8) b = __uint_as_float((__float_as_uint(b) + 0x80000u) & 0xfff00000u);
  return a + b;
}

template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long i) const {
    v.store(v.t.y, i, sum(kFault, v.load(v.t.a, i), v.load(v.t.b, i)));
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Residual, &Problem::elements, Faulty<kFault>>;

}  // namespace

LADDER_CHEATS(Residual, (std::vector<std::string>{"n3 h4 w4 c8", "n2 h3 w5 c7"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::a_alone>("a_alone"),
                  faulty<Fault::difference>("difference"),
                  faulty<Fault::mean>("mean"),
                  faulty<Fault::b_in_fp8>("b_in_fp8"),
              })

}  // namespace ladder::add
