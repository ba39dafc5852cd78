#include "dev/resample/windows.h"
#include "tests/wrong/wrong.h"

namespace ladder::resample {
namespace {

// Another function of a window's four elements in y: two of the upper row, then two of the lower one.
template <class Function>
struct Each {
  __device__ void operator()(const auto& v, long long i) const {
    const Windows windows{
        .units = static_cast<unsigned>(v.p.c), .columns = static_cast<unsigned>(v.p.w / 2), .count = 0};
    const unsigned first = windows.first(static_cast<unsigned>(i));
    float x[4];
    for (int j = 0; j < 4; ++j) x[j] = v.load(v.t.x, first + j / 2 * windows.below() + j % 2 * windows.right());
    v.store(v.t.y, i, Function{}(x));
  }
};

template <class Function>
constexpr auto on_output = wrong::spoiled_output<Pool, &Problem::small, Each<Function>>;

// The sum of four, as of a pooling that forgets its mean.
struct NoQuarter {
  __device__ float operator()(const float (&x)[4]) const { return x[0] + x[1] + x[2] + x[3]; }
};

// The mean of two of the four.
struct Half {
  __device__ float operator()(const float (&x)[4]) const { return 0.5f * (x[0] + x[3]); }
};

// Every second pixel of every second row.
struct Subsamples {
  __device__ float operator()(const float (&x)[4]) const { return x[0]; }
};

// The other pooling.
struct Maximum {
  __device__ float operator()(const float (&x)[4]) const { return fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])); }
};

// Rounds between additions.
struct Bf16Sum {
  __device__ float operator()(const float (&x)[4]) const {
    float sum = 0;
    for (const float each : x) sum = to_float(from_float<__nv_bfloat16>(sum + each));
    return 0.25f * sum;
  }
};

}  // namespace

LADDER_CHEATS(Pool, (std::vector<std::string>{"n2 h4 w6 c8", "n1 h8 w4 c5"}),
              {
                  wrong::honest<Pool>(),
                  on_output<NoQuarter>("no_quarter"),
                  on_output<Half>("half"),
                  on_output<Subsamples>("subsamples"),
                  on_output<Maximum>("maximum"),
                  on_output<Bf16Sum>("bf16_sum"),
              })

}  // namespace ladder::resample
