#include "tests/wrong/conv3x3/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::conv3x3 {
namespace {

using Tensors = Dgrad::Tensors;

// Sums over whole groups of eight output channels, and drops the rest.
struct TailOfK {
  __device__ float operator()(const auto& v, long long i) const {
    return i % v.p.k < v.p.k / 8 * 8 ? v.load(v.t.dy, i) : 0.0f;
  }
};

// Takes what lies next to a pixel in memory for its neighbour: at an edge that is a pixel of the next row or image.
struct WrapsAtEdges {
  __device__ void operator()(const auto& v, long long index) const {
    const Problem& p = v.p;
    const long long c = index % p.c;
    float sum = 0;
    for (int tap = 0; tap < 9; ++tap) {
      const long long neighbour = index / p.c + (1 - tap / 3) * p.w + 1 - tap % 3;
      if (neighbour < 0 || neighbour >= static_cast<long long>(p.n) * p.h * p.w) continue;
      for (long long k = 0; k < p.k; ++k) {
        sum += v.load(v.t.dy, neighbour * p.k + k) * v.load(v.t.w, (k * 9 + tap) * p.c + c);
      }
    }
    v.store(v.t.dx, index, sum);
  }
};

}  // namespace

// taps_not_flipped convolves dy with the taps in the order of the forward pass; channels_not_exchanged reads the weights as
// a convolution of dy would want them.
LADDER_CHEATS(Dgrad, wrong_problems(),
              {
                  wrong::honest<Dgrad>(),
                  wrong::moved_input<Dgrad, &Tensors::w, size_w, FlippedTaps>("taps_not_flipped"),
                  wrong::moved_input<Dgrad, &Tensors::w, size_w, Transposed>("channels_not_exchanged"),
                  wrong::spoiled_input<Dgrad, &Tensors::dy, size_y, TailOfK>("tail_of_k"),
                  wrong::other_kernel<Dgrad, size_x, WrapsAtEdges>("wraps_at_edges"),
              })

}  // namespace ladder::conv3x3
