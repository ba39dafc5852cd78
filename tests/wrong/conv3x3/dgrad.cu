// An honest kernel for the gradient of the input, to spoil in one way each.
#include "dev/conv3x3/conv3x3.h"
#include "tests/wrong/conv3x3/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::conv3x3 {
namespace {

template <class T>
struct View {
  Problem p;
  const T* dy;
  const T* w;
  T* dx;
  T* workspace;

  View(const Problem& problem, const Dgrad::Tensors& t, void* space)
      : p(problem),
        dy(static_cast<const T*>(t.dy)),
        w(static_cast<const T*>(t.w)),
        dx(static_cast<T*>(t.dx)),
        workspace(static_cast<T*>(space)) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.n) * p.h * p.w * p.c; }
};

// What an honest kernel makes of one output element, with each step open to a spoiled one.
struct Honest {
  template <class T>
  __device__ float first(const View<T>&, long long /*index*/) const {
    return 0.0f;
  }
  // Whether tap r * 3 + s, `dr` rows and `ds` columns away, has a pixel.
  __device__ bool inside(const Problem& p, long long pixel, int dr, int ds) const {
    const int row = static_cast<int>(pixel / p.w % p.h) + dr;
    const int col = static_cast<int>(pixel % p.w) + ds;
    return row >= 0 && row < p.h && col >= 0 && col < p.w;
  }
  __device__ int channels(const Problem& p) const { return p.k; }
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return (static_cast<long long>(k) * 9 + tap) * p.c + c;
  }
};

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Steps steps;
    const Problem& p = v.p;
    const int c = static_cast<int>(index % p.c);
    const long long pixel = index / p.c;
    float sum = steps.first(v, index);
    for (int tap = 0; tap < 9; ++tap) {
      const int dr = 1 - tap / 3;
      const int ds = 1 - tap % 3;
      if (!steps.inside(p, pixel, dr, ds)) continue;
      for (int k = 0; k < steps.channels(p); ++k) {
        sum += to_float(v.dy[(pixel + dr * p.w + ds) * p.k + k]) * to_float(v.w[steps.weight(p, k, tap, c)]);
      }
    }
    v.dx[index] = from_float<T>(sum);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Dgrad::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Dgrad, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// Convolves dy with the taps in the order of the forward pass.
struct TapsNotFlipped : Honest {
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return Honest::weight(p, k, 8 - tap, c);
  }
};

// Reads the weights as [c, 3, 3, k], which is what a convolution of dy would want.
struct ChannelsNotExchanged : Honest {
  __device__ long long weight(const Problem& p, int k, int tap, int c) const {
    return (static_cast<long long>(c) * 9 + tap) * p.k + k;
  }
};

// Sums over whole groups of eight output channels, and drops the rest.
struct TailOfK : Honest {
  __device__ int channels(const Problem& p) const { return p.k / 8 * 8; }
};

// Takes what lies next to a pixel in memory for its neighbour: at an edge that is a pixel of the next row or image.
struct WrapsAtEdges : Honest {
  __device__ bool inside(const Problem& p, long long pixel, int dr, int ds) const {
    const long long neighbour = pixel + dr * p.w + ds;
    return neighbour >= 0 && neighbour < static_cast<long long>(p.n) * p.h * p.w;
  }
};

}  // namespace

LADDER_CHEATS(Dgrad, wrong_problems(),
              {
                  {.name = "honest", .launch = launch_cheat<Spoiled<Honest>>},
                  {.name = "taps_not_flipped", .launch = launch_cheat<Spoiled<TapsNotFlipped>>},
                  {.name = "channels_not_exchanged", .launch = launch_cheat<Spoiled<ChannelsNotExchanged>>},
                  {.name = "tail_of_k", .launch = launch_cheat<Spoiled<TailOfK>>},
                  {.name = "wraps_at_edges", .launch = launch_cheat<Spoiled<WrapsAtEdges>>},
              })

}  // namespace ladder::conv3x3
