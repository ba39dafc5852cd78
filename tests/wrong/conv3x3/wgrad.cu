// An honest kernel for the gradients of the weights and the bias, to spoil in one way each: a reduction over all pixels in
// two stages, partial sums of shares of the pixels and the sum of those.
#include "dev/conv3x3/conv3x3.h"
#include "tests/wrong/conv3x3/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::conv3x3 {
namespace {

using wrong::kThreads;

constexpr int kShares = 4;

inline long long num_sums(const Problem& p) { return 9ll * p.k * p.c + (p.bias ? p.k : 0); }

// Outputs are counted as those of dw, then those of dbias.
template <class T>
struct View {
  Problem p;
  const T* x;
  const T* dy;
  T* dw;
  float* dbias;
  float* partial;  // [kShares][count()]

  View(const Problem& problem, const Wgrad::Tensors& t, void* space)
      : p(problem),
        x(static_cast<const T*>(t.x)),
        dy(static_cast<const T*>(t.dy)),
        dw(static_cast<T*>(t.dw)),
        dbias(t.dbias),
        partial(static_cast<float*>(space)) {}

  __host__ __device__ long long num_weights() const { return 9ll * p.k * p.c; }
  __host__ __device__ long long count() const { return num_weights() + (dbias ? p.k : 0); }
  __device__ bool is_bias(long long index) const { return index >= num_weights(); }
  __device__ float load(long long index) const {
    return is_bias(index) ? dbias[index - num_weights()] : to_float(dw[index]);
  }
  __device__ void store(long long index, float value) const {
    if (is_bias(index)) {
      dbias[index - num_weights()] = value;
    } else {
      dw[index] = from_float<T>(value);
    }
  }
  // The sum behind one output over some of the pixels.
  __device__ float sum(long long index, int begin, int end) const {
    const int k = static_cast<int>(is_bias(index) ? index - num_weights() : index / p.c / 9);
    const int dr = static_cast<int>(index / p.c / 3 % 3) - 1;
    const int ds = static_cast<int>(index / p.c % 3) - 1;
    float sum = 0;
    for (int pixel = begin; pixel < end; ++pixel) {
      const float gradient = to_float(dy[pixel * p.k + k]);
      const int row = pixel / p.w % p.h + dr;
      const int col = pixel % p.w + ds;
      if (is_bias(index)) {
        sum += gradient;
      } else if (row >= 0 && row < p.h && col >= 0 && col < p.w) {
        sum += gradient * to_float(x[(pixel + dr * p.w + ds) * p.c + index % p.c]);
      }
    }
    return sum;
  }
};

// What an honest kernel does, with each step open to a spoiled one.
struct Honest {
  __device__ int pixels_of_a_share(int pixels) const { return (pixels + kShares - 1) / kShares; }
  __device__ float rounded(float partial) const { return partial; }
  template <class T>
  __device__ float first(const View<T>&, long long /*index*/) const {
    return 0.0f;
  }
  __device__ int num_shares() const { return kShares; }
  __device__ float scale(const Problem&) const { return 1.0f; }
  template <class T>
  __device__ void store(const View<T>& v, long long index, float value) const {
    v.store(index, value);
  }
};

template <class Steps>
struct Partials {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Steps steps;
    const int pixels = v.p.n * v.p.h * v.p.w;
    const int each = steps.pixels_of_a_share(pixels);
    for (int share = 0; share < kShares; ++share) {
      const int begin = share * each < pixels ? share * each : pixels;
      const int end = begin + each < pixels ? begin + each : pixels;
      v.partial[share * v.count() + index] = steps.rounded(v.sum(index, begin, end));
    }
  }
};

template <class Steps>
struct Total {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Steps steps;
    float sum = steps.first(v, index);
    for (int share = 0; share < steps.num_shares(); ++share) {
      const int row = share < kShares ? share : kShares - 1;
      sum += v.partial[row * v.count() + index];
    }
    steps.store(v, index, sum * steps.scale(v.p));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Wgrad, View, Cheat>(p, t, workspace, stream);
}

template <class Steps>
void launch_both(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Partials<Steps>>(p, t, workspace, stream);
  launch_cheat<Total<Steps>>(p, t, workspace, stream);
}

inline std::size_t partial_bytes(const Problem& p) { return kShares * num_sums(p) * sizeof(float); }

// What can be wrong with it.

// Rounds the shares of the pixels down: the last few pixels belong to none.
struct TailOfPixels : Honest {
  __device__ int pixels_of_a_share(int pixels) const { return pixels / kShares; }
};

// Leaves out the last partial sum.
struct PartialMissing : Honest {
  __device__ int num_shares() const { return kShares - 1; }
};

// Adds the last partial sum twice: a loop with `<=`, and an index that is held within its range.
struct PartialTwice : Honest {
  __device__ int num_shares() const { return kShares + 1; }
};

// Writes dw as [c, 3, 3, k].
struct TransposedDw : Honest {
  template <class T>
  __device__ void store(const View<T>& v, long long index, float value) const {
    const long long c = index % v.p.c;
    const long long tap = index / v.p.c % 9;
    const long long k = index / v.p.c / 9;
    v.store(v.is_bias(index) ? index : (c * 9 + tap) * v.p.k + k, value);
  }
};

// Writes the taps in reverse order, as the data gradient reads them.
struct FlippedTaps : Honest {
  template <class T>
  __device__ void store(const View<T>& v, long long index, float value) const {
    const long long tap = index / v.p.c % 9;
    v.store(v.is_bias(index) ? index : index + (8 - 2 * tap) * v.p.c, value);
  }
};

// The mean over the batch instead of the sum, which a batch of one hides.
struct MeanOfBatch : Honest {
  __device__ float scale(const Problem& p) const { return 1.0f / static_cast<float>(p.n); }
};

// Keeps partial sums in bf16.
struct Bf16Partials : Honest {
  __device__ float rounded(float partial) const { return to_float(from_float<__nv_bfloat16>(partial)); }
};

// Adds up in whatever order blocks arrive: every answer is within the bound, and no two need be the same.
namespace float_atomics {

struct Clear {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    v.store(index, 0.0f);
  }
};

// A block adds one pixel's products to kThreads outputs.
__global__ void add_kernel(View<float> v) {
  const int pixels = v.p.n * v.p.h * v.p.w;
  const int pixel = static_cast<int>(blockIdx.x % pixels);
  const long long index = blockIdx.x / pixels * static_cast<long long>(kThreads) + threadIdx.x;
  if (index >= v.count()) return;
  float* const to = v.is_bias(index) ? v.dbias + (index - v.num_weights()) : v.dw + index;
  atomicAdd(to, v.sum(index, pixel, pixel + 1));
}

void launch_atomics(const Problem& p, const Wgrad::Tensors& t, void*, Stream stream) {
  launch_cheat<Clear>(p, t, nullptr, stream);
  const auto blocks = wrong::num_blocks(num_sums(p)) * static_cast<unsigned>(p.pixels());
  launch(add_kernel, {.grid = blocks, .block = kThreads}, stream, View<float>(p, t, nullptr));
}

}  // namespace float_atomics

// Begins with another partial sum at every call, so that rounding makes of equal inputs outputs that are not.
namespace order_of_the_day {

template <int kFirst>
struct Rotated {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    float sum = 0;
    for (int i = 0; i < kShares; ++i) sum += v.partial[(kFirst + i) % kShares * v.count() + index];
    v.store(index, sum);
  }
};

void launch_rotated(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  static bool turned = false;
  launch_cheat<Partials<Honest>>(p, t, workspace, stream);
  if (turned) {
    launch_cheat<Rotated<kShares / 2>>(p, t, workspace, stream);
  } else {
    launch_cheat<Rotated<0>>(p, t, workspace, stream);
  }
  turned = !turned;
}

}  // namespace order_of_the_day

}  // namespace

LADDER_CHEATS(Wgrad, wrong_problems(),
              {
                  {.name = "honest", .launch = launch_both<Honest>, .workspace_bytes = partial_bytes},
                  {.name = "tail_of_pixels", .launch = launch_both<TailOfPixels>, .workspace_bytes = partial_bytes},
                  {.name = "partial_missing", .launch = launch_both<PartialMissing>, .workspace_bytes = partial_bytes},
                  {.name = "partial_twice", .launch = launch_both<PartialTwice>, .workspace_bytes = partial_bytes},
                  {.name = "transposed_dw", .launch = launch_both<TransposedDw>, .workspace_bytes = partial_bytes},
                  {.name = "flipped_taps", .launch = launch_both<FlippedTaps>, .workspace_bytes = partial_bytes},
                  {.name = "mean_of_batch", .launch = launch_both<MeanOfBatch>, .workspace_bytes = partial_bytes},
                  {.name = "bf16_partials", .launch = launch_both<Bf16Partials>, .workspace_bytes = partial_bytes},
                  {.name = "float_atomics", .launch = float_atomics::launch_atomics, .dtypes = {Dtype::f32}},
                  {.name = "order_of_the_day",
                   .launch = order_of_the_day::launch_rotated,
                   .workspace_bytes = partial_bytes,
                   .dtypes = {Dtype::f32}},
              })

}  // namespace ladder::conv3x3
