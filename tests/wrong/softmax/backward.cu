#include "dev/softmax/softmax.h"
#include "tests/wrong/wrong.h"

namespace ladder::softmax {
namespace {

enum class Fault {
  none,
  no_sum,          // y dy alone
  sum_of_dy,       // without y in the sum
  mean,            // the sum divided by the row's length
  sum_without_y,   // y dy less the sum
  sign,            // adds the sum
  sum_of_column,   // over the column
  neighbours_row,  // of the next row
  first_tile,      // of the first 32 elements alone
  whole_quads,     // without the elements behind the last four
  bf16_sum,        // adds up in bf16
};

template <Fault kFault>
__device__ float sum_of(const auto& v, long long first, long long step, int count) {
  float sum = 0;
  for (int j = 0; j < count; ++j) {
    const long long at = first + j * step;
    sum += kFault == Fault::sum_of_dy ? v.load(v.t.dy, at) : v.load(v.t.y, at) * v.load(v.t.dy, at);
    if (kFault == Fault::bf16_sum) sum = to_float(from_float<__nv_bfloat16>(sum));
  }
  return sum;
}

// Every element's thread makes its row's sum anew.
template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long i) const {
    const int m = v.p.m;
    const int n = v.p.n;
    long long first = i / n * n;
    long long step = 1;
    int count = n;
    if (kFault == Fault::sum_of_column) first = i % n, step = n, count = m;
    if (kFault == Fault::neighbours_row) first = (i / n + 1) % m * n;
    if (kFault == Fault::first_tile) count = n < 32 ? n : 32;
    if (kFault == Fault::whole_quads && n >= 4) count = n / 4 * 4;
    float sum = kFault == Fault::no_sum ? 0.0f : sum_of<kFault>(v, first, step, count);
    if (kFault == Fault::mean) sum /= static_cast<float>(n);
    if (kFault == Fault::sign) sum = -sum;
    const float y = v.load(v.t.y, i);
    const float dy = v.load(v.t.dy, i);
    v.store(v.t.dx, i, kFault == Fault::sum_without_y ? y * dy - sum : y * (dy - sum));
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Backward, &Problem::elements, Faulty<kFault>>;

}  // namespace

LADDER_CHEATS(Backward, (std::vector<std::string>{"m5 n12", "m7 n33", "m4 n517"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::no_sum>("no_sum"),
                  faulty<Fault::sum_of_dy>("sum_of_dy"),
                  faulty<Fault::mean>("mean"),
                  faulty<Fault::sum_without_y>("sum_without_y"),
                  faulty<Fault::sign>("sign"),
                  faulty<Fault::sum_of_column>("sum_of_column"),
                  faulty<Fault::neighbours_row>("neighbours_row"),
                  faulty<Fault::first_tile>("first_tile"),
                  faulty<Fault::whole_quads>("whole_quads"),
                  wrong::only<Backward>({Dtype::f32}, faulty<Fault::bf16_sum>("bf16_sum")),
              })

}  // namespace ladder::softmax
