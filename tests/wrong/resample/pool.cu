#include "tests/wrong/resample/windows.h"

namespace ladder::resample {
namespace {

template <class Function>
constexpr auto on_output =
    wrong::other_kernel<Pool, &Problem::small, EachWindow<&Pool::Tensors::x, &Pool::Tensors::y, Function>>;

// The other pooling.
struct Maximum {
  __device__ float operator()(const float (&x)[4]) const { return fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])); }
};

}  // namespace

// no_quarter is a pooling that forgets its mean; half takes two of the four, subsamples every second pixel and row.
LADDER_CHEATS(Pool, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  on_output<Weighted<1, 1, 1, 1, 4>>("honest"),
                  on_output<Weighted<1, 1, 1, 1>>("no_quarter"),
                  on_output<Weighted<1, 0, 0, 1, 2>>("half"),
                  on_output<Weighted<1, 0, 0, 0>>("subsamples"),
                  on_output<Maximum>("maximum"),
                  on_output<Bf16Sum<4>>("bf16_sum"),
              })

}  // namespace ladder::resample
