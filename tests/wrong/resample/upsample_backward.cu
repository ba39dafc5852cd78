#include "tests/wrong/resample/windows.h"

namespace ladder::resample {
namespace {

using Tensors = UpsampleBackward::Tensors;

template <class Function>
constexpr auto on_output =
    wrong::other_kernel<UpsampleBackward, &Problem::small, EachWindow<&Tensors::dy, &Tensors::dx, Function>>;

}  // namespace

// averages does as if upsampling had divided by four; one_row takes the upper one alone.
LADDER_CHEATS(UpsampleBackward, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  on_output<Weighted<1, 1, 1, 1>>("honest"),
                  on_output<Weighted<1, 1, 1, 1, 4>>("averages"),
                  on_output<Weighted<1, 0, 0, 0>>("one_of_four"),
                  on_output<Weighted<1, 1, 0, 0>>("one_row"),
                  on_output<Bf16Sum<1>>("bf16_sum"),
              })

}  // namespace ladder::resample
