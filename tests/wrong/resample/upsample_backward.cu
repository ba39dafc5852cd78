#include "dev/resample/windows.h"
#include "tests/wrong/wrong.h"

namespace ladder::resample {
namespace {

// Another function of a window's four gradients in dx: two of the upper row, then two of the lower one.
template <class Function>
struct Each {
  __device__ void operator()(const auto& v, long long i) const {
    const Windows windows{
        .units = static_cast<unsigned>(v.p.c), .columns = static_cast<unsigned>(v.p.w / 2), .count = 0};
    const unsigned first = windows.first(static_cast<unsigned>(i));
    float dy[4];
    for (int j = 0; j < 4; ++j) dy[j] = v.load(v.t.dy, first + j / 2 * windows.below() + j % 2 * windows.right());
    v.store(v.t.dx, i, Function{}(dy));
  }
};

template <class Function>
constexpr auto on_output = wrong::spoiled_output<UpsampleBackward, &Problem::small, Each<Function>>;

// The gradient averaged, as if upsampling had divided by four.
struct Averages {
  __device__ float operator()(const float (&dy)[4]) const { return 0.25f * (dy[0] + dy[1] + dy[2] + dy[3]); }
};

// Each pixel's gradient from one of the four places that it went to.
struct OneOfFour {
  __device__ float operator()(const float (&dy)[4]) const { return dy[0]; }
};

// Of the two rows the upper one alone.
struct OneRow {
  __device__ float operator()(const float (&dy)[4]) const { return dy[0] + dy[1]; }
};

// Rounds between additions.
struct Bf16Sum {
  __device__ float operator()(const float (&dy)[4]) const {
    float sum = 0;
    for (const float each : dy) sum = to_float(from_float<__nv_bfloat16>(sum + each));
    return sum;
  }
};

}  // namespace

LADDER_CHEATS(UpsampleBackward, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  wrong::honest<UpsampleBackward>(),
                  on_output<Averages>("averages"),
                  on_output<OneOfFour>("one_of_four"),
                  on_output<OneRow>("one_row"),
                  on_output<Bf16Sum>("bf16_sum"),
              })

}  // namespace ladder::resample
