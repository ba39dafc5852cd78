#include <utility>

#include "tests/wrong/conv3x3/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::conv3x3 {
namespace {

using Tensors = Fprop::Tensors;

// Returns bias[k], stored in x's type with params16, else in fp32.
__device__ float bias_of(const auto& v, long long k) {
  return v.p.params16 ? v.load(static_cast<const void*>(v.t.bias), k) : v.t.bias[k];
}

enum class Fault {
  none,
  bf16_sum,        // accumulates in bf16
  border_tap,      // forgets one tap in the last column, where the halo of a tile ends
  next_image,      // adds the neighbouring image's embedding
  by_pixel,        // indexes embeddings by pixel instead of image
  rounded_before,  // rounds the sum before the residual is added, and then again
};

template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long index) const {
    const Problem& p = v.p;
    const long long k = index % p.k;
    const long long pixel = index / p.k;
    const int col = static_cast<int>(pixel % p.w);
    const int row = static_cast<int>(pixel / p.w % p.h);
    float sum = v.t.bias ? bias_of(v, k) : 0.0f;
    for (int tap = 0; tap < 9; ++tap) {
      const int dr = tap / 3 - 1;
      const int ds = tap % 3 - 1;
      if (row + dr < 0 || row + dr >= p.h || col + ds < 0 || col + ds >= p.w) continue;
      if (kFault == Fault::border_tap && col == p.w - 1 && tap == 0) continue;
      for (int c = 0; c < p.c; ++c) {
        sum += v.load(v.t.x, (pixel + dr * p.w + ds) * p.c + c) * v.load(v.t.w, (k * 9 + tap) * p.c + c);
        if (kFault == Fault::bf16_sum) sum = to_float(from_float<__nv_bfloat16>(sum));
      }
    }
    if (v.t.e) {
      long long image = pixel / (p.h * p.w);
      if (kFault == Fault::next_image) image = (image + 1) % p.n;
      if (kFault == Fault::by_pixel) image = pixel % p.n;
      sum += v.t.e[image * p.embedding + p.first + k];
    }
    if (kFault == Fault::rounded_before) {
      v.store(v.t.y, index, sum);
      sum = v.load(v.t.y, index);
    }
    if (v.t.r) sum += v.load(v.t.r, index);
    v.store(v.t.y, index, sum);
  }
};

// Read channels in pairs, and drop the last of an odd number.
struct OddChannel {
  __device__ float operator()(const auto& v, long long i) const {
    return i % v.p.c < v.p.c / 2 * 2 ? v.load(v.t.x, i) : 0.0f;
  }
};

// Ignore the bias.
void no_bias(Problem& p, Tensors& t) {
  p.bias = false;
  t.bias = nullptr;
}

// Read the other half of a 32-bit word as the bias, if the bias has 16 bits.
struct OtherHalf {
  __device__ void operator()(const auto& v, long long i) const {
    if (!v.t.bias || !v.p.params16) return;
    const long long k = i % v.p.k;
    v.store(v.t.y, i, v.load(v.t.y, i) - bias_of(v, k) + bias_of(v, k ^ 1));
  }
};

// Ignore the residual.
void no_residual(Problem& p, Tensors& t) {
  p.residual = false;
  t.r = nullptr;
}

// Read the matrix's first columns instead of those from p.first on.
void first_columns(Problem& p) { p.first = 0; }

// Exchange height and width, which only a square image hides.
void swaps_axes(Problem& p) { std::swap(p.h, p.w); }

}  // namespace

// flipped_taps convolves; the layer correlates.
LADDER_CHEATS(Fprop, wrong_problems(),
              {
                  wrong::other_kernel<Fprop, size_y, Faulty<Fault::none>>("honest"),
                  wrong::other_kernel<Fprop, size_y, Faulty<Fault::bf16_sum>>("bf16_sum"),
                  wrong::other_kernel<Fprop, size_y, Faulty<Fault::border_tap>>("border_tap"),
                  wrong::other_kernel<Fprop, size_y, Faulty<Fault::next_image>>("next_image"),
                  wrong::other_kernel<Fprop, size_y, Faulty<Fault::by_pixel>>("by_pixel"),
                  wrong::only({Dtype::bf16, Dtype::f16},
                              wrong::other_kernel<Fprop, size_y, Faulty<Fault::rounded_before>>("rounded_before")),
                  wrong::spoiled_problem<Fprop, no_residual>("no_residual"),
                  wrong::spoiled_problem<Fprop, first_columns>("first_columns"),
                  wrong::spoiled_input<Fprop, &Tensors::x, size_x, OddChannel>("odd_channel"),
                  wrong::spoiled_problem<Fprop, no_bias>("no_bias"),
                  wrong::only({Dtype::bf16, Dtype::f16},
                              wrong::spoiled_output<Fprop, size_y, OtherHalf>("other_half_of_bias")),
                  wrong::spoiled_problem<Fprop, swaps_axes>("swaps_axes"),
                  wrong::moved_input<Fprop, &Tensors::w, size_w, Transposed>("transposed_weights"),
                  wrong::moved_input<Fprop, &Tensors::w, size_w, FlippedTaps>("flipped_taps"),
              })

}  // namespace ladder::conv3x3
