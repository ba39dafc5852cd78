#include "dev/add/add.h"
#include "tests/wrong/wrong.h"

namespace ladder::add {
namespace {

// Another function of a and b in y.
template <class Function>
struct Each {
  __device__ void operator()(const auto& v, long long i) const {
    v.store(v.t.y, i, Function{}(v.load(v.t.a, i), v.load(v.t.b, i)));
  }
};

template <class Function>
constexpr auto on_output = wrong::spoiled_output<Residual, &Problem::elements, Each<Function>>;

// The block without its shortcut.
struct AAlone {
  __device__ float operator()(float a, float) const { return a; }
};

// The other sign.
struct Difference {
  __device__ float operator()(float a, float b) const { return a - b; }
};

// The mean of both, as some models scale their residuals.
struct Mean {
  __device__ float operator()(float a, float b) const { return 0.5f * (a + b); }
};

// A shortcut of three bits.
struct BInFp8 {
  __device__ float operator()(float a, float b) const {
    return a + __uint_as_float((__float_as_uint(b) + 0x80000u) & 0xfff00000u);
  }
};

}  // namespace

LADDER_CHEATS(Residual, (std::vector<std::string>{"n3 h4 w4 c8", "n2 h3 w5 c7"}),
              {
                  wrong::honest<Residual>(),
                  on_output<AAlone>("a_alone"),
                  on_output<Difference>("difference"),
                  on_output<Mean>("mean"),
                  on_output<BInFp8>("b_in_fp8"),
              })

}  // namespace ladder::add
