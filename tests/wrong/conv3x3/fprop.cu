// An honest forward kernel, to spoil in one way each.
#include "dev/conv3x3/conv3x3.h"
#include "tests/wrong/conv3x3/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::conv3x3 {
namespace {

template <class T>
struct View {
  Problem p;
  const T* x;
  const T* w;
  const float* bias;
  T* y;
  float* workspace;

  View(const Problem& problem, const Fprop::Tensors& t, void* space)
      : p(problem),
        x(static_cast<const T*>(t.x)),
        w(static_cast<const T*>(t.w)),
        bias(t.bias),
        y(static_cast<T*>(t.y)),
        workspace(static_cast<float*>(space)) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.n) * p.h * p.w * p.k; }
};

// What an honest kernel makes of one output element, with each step open to a spoiled one.
struct Honest {
  // tap is r * 3 + s.
  __device__ bool uses_tap(const Problem&, int /*row*/, int /*col*/, int /*tap*/) const { return true; }
  __device__ int channels(const Problem& p) const { return p.c; }
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return (static_cast<long long>(k) * 9 + tap) * p.c + c;
  }
  __device__ float add(float sum, float term) const { return sum + term; }
  __device__ float first(const float* bias, int k) const { return bias ? bias[k] : 0.0f; }
};

template <class T, class Steps>
__device__ float output(const View<T>& v, const Steps& steps, long long index) {
  const Problem& p = v.p;
  const int k = static_cast<int>(index % p.k);
  const long long pixel = index / p.k;
  const int col = static_cast<int>(pixel % p.w);
  const int row = static_cast<int>(pixel / p.w % p.h);
  float sum = steps.first(v.bias, k);
  for (int tap = 0; tap < 9; ++tap) {
    const int dr = tap / 3 - 1;
    const int ds = tap % 3 - 1;
    const bool inside = row + dr >= 0 && row + dr < p.h && col + ds >= 0 && col + ds < p.w;
    if (!inside || !steps.uses_tap(p, row, col, tap)) continue;
    for (int c = 0; c < steps.channels(p); ++c) {
      const float x = to_float(v.x[(pixel + dr * p.w + ds) * p.c + c]);
      sum = steps.add(sum, x * to_float(v.w[steps.weight(p, k, tap, c)]));
    }
  }
  return sum;
}

template <class T>
__device__ float output(const View<T>& v, long long index) {
  return output(v, Honest{}, index);
}

template <class Cheat>
void launch_cheat(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Fprop, View, Cheat>(p, t, workspace, stream);
}

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.y[index] = from_float<T>(output(v, Steps{}, index));
  }
};

// What can be wrong with it.

// Accumulates in bf16.
struct Bf16Sum : Honest {
  __device__ float add(float sum, float term) const { return to_float(from_float<__nv_bfloat16>(sum + term)); }
};

// Forgets one tap in the last column, where the halo of a tile ends.
struct BorderTap : Honest {
  __device__ bool uses_tap(const Problem& p, int, int col, int tap) const { return col < p.w - 1 || tap != 0; }
};

// Reads channels in pairs, and drops the last of an odd number.
struct OddChannel : Honest {
  __device__ int channels(const Problem& p) const { return p.c / 2 * 2; }
};

// Ignores the bias.
struct NoBias : Honest {
  __device__ float first(const float*, int) const { return 0.0f; }
};

// Takes rows for columns, which only a square image hides.
struct SwapsAxes {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    View<T> turned = v;
    turned.p.h = v.p.w;
    turned.p.w = v.p.h;
    v.y[index] = from_float<T>(output(turned, index));
  }
};

// Reads the weights as [c, 3, 3, k].
struct TransposedWeights : Honest {
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return (static_cast<long long>(c) * 9 + tap) * p.k + k;
  }
};

// Convolves where the layer correlates: taps in reverse order.
struct FlippedTaps : Honest {
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return (static_cast<long long>(k) * 9 + (8 - tap)) * p.c + c;
  }
};

}  // namespace

LADDER_CHEATS(Fprop, wrong_problems(),
              {
                  {.name = "honest", .launch = launch_cheat<Spoiled<Honest>>},
                  {.name = "bf16_sum", .launch = launch_cheat<Spoiled<Bf16Sum>>},
                  {.name = "border_tap", .launch = launch_cheat<Spoiled<BorderTap>>},
                  {.name = "odd_channel", .launch = launch_cheat<Spoiled<OddChannel>>},
                  {.name = "no_bias", .launch = launch_cheat<Spoiled<NoBias>>},
                  {.name = "swaps_axes", .launch = launch_cheat<SwapsAxes>},
                  {.name = "transposed_weights", .launch = launch_cheat<Spoiled<TransposedWeights>>},
                  {.name = "flipped_taps", .launch = launch_cheat<Spoiled<FlippedTaps>>},
              })

}  // namespace ladder::conv3x3
