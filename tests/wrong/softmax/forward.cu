#include <cfloat>
#include <cmath>

#include "dev/softmax/softmax.h"
#include "tests/wrong/wrong.h"

namespace ladder::softmax {
namespace {

enum class Fault {
  none,
  no_max,          // e^x itself: infinity, or nothing to divide by
  max_from_zero,   // a max that begins at zero: rows far below it lose their sum
  max_of_column,   // max and sum of the column
  neighbours_row,  // max and sum of the next row
  first_tile,      // of the first 32 elements alone
  first_max,       // max of the first 64 elements: enough as long as no other is 88 above it
  whole_quads,     // without the elements behind the last four
  never_scaled,    // an online sum that a greater max leaves as it was
  bf16_sum,        // adds up in bf16
  coarse,          // exponentials of twelve bits: enough for 16-bit outputs, not for fp32
  no_sum,          // the exponential alone
  logarithm,       // of the softmax
};

// Max and sum of `count` elements from `first` on, `step` apart.
template <Fault kFault>
__device__ float2 max_and_sum(const auto& v, long long first, long long step, int count) {
  float max = kFault == Fault::max_from_zero ? 0.0f : -FLT_MAX;
  float sum = 0;
  if constexpr (kFault == Fault::never_scaled) {
    for (int j = 0; j < count; ++j) {
      const float x = v.load(v.t.x, first + j * step);
      max = fmaxf(max, x);
      sum += expf(x - max);
    }
  } else {
    const int seen = kFault == Fault::first_max && count > 64 ? 64 : count;
    for (int j = 0; j < seen; ++j) max = fmaxf(max, v.load(v.t.x, first + j * step));
    if (kFault == Fault::no_max) max = 0;
    for (int j = 0; j < count; ++j) {
      sum += expf(v.load(v.t.x, first + j * step) - max);
      if (kFault == Fault::bf16_sum) sum = to_float(from_float<__nv_bfloat16>(sum));
    }
  }
  return {max, sum};
}

// Every element's thread makes its row's max and sum anew.
template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long i) const {
    const int m = v.p.m;
    const int n = v.p.n;
    long long first = i / n * n;
    long long step = 1;
    int count = n;
    if (kFault == Fault::max_of_column) first = i % n, step = n, count = m;
    if (kFault == Fault::neighbours_row) first = (i / n + 1) % m * n;
    if (kFault == Fault::first_tile) count = n < 32 ? n : 32;
    if (kFault == Fault::whole_quads && n >= 4) count = n / 4 * 4;
    const float2 row = max_and_sum<kFault>(v, first, step, count);
    float y = expf(v.load(v.t.x, i) - row.x);
    if (kFault == Fault::coarse) y *= 1.0f + 0x1p-12f;
    if (kFault != Fault::no_sum) y /= row.y;
    v.store(v.t.y, i, kFault == Fault::logarithm ? logf(y) : y);
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Forward, &Problem::elements, Faulty<kFault>>;

}  // namespace

LADDER_CHEATS(Forward, (std::vector<std::string>{"m5 n12", "m7 n33", "m4 n517"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::no_max>("no_max"),
                  faulty<Fault::max_from_zero>("max_from_zero"),
                  faulty<Fault::max_of_column>("max_of_column"),
                  faulty<Fault::neighbours_row>("neighbours_row"),
                  faulty<Fault::first_tile>("first_tile"),
                  faulty<Fault::first_max>("first_max"),
                  faulty<Fault::whole_quads>("whole_quads"),
                  faulty<Fault::never_scaled>("never_scaled"),
                  wrong::only<Forward>({Dtype::f32}, faulty<Fault::bf16_sum>("bf16_sum")),
                  wrong::only<Forward>({Dtype::f32}, faulty<Fault::coarse>("coarse")),
                  faulty<Fault::no_sum>("no_sum"),
                  faulty<Fault::logarithm>("logarithm"),
              })

}  // namespace ladder::softmax
