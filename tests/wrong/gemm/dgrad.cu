// Honest kernels for the gradient of the input, to spoil in one way each: partial sums of shares of the terms, then their
// sum.
#include "dev/gemm/output.h"
#include "tests/wrong/gemm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::gemm {
namespace {

using wrong::kThreads;

constexpr int kShares = 4;

template <class T>
struct View {
  Problem p;
  const T* dy;
  const T* w;
  const T* r;
  SideBySide<T> dx;
  float* partial;  // [kShares][count()]

  View(const Problem& problem, const Dgrad::Tensors& t, void* space)
      : p(problem),
        dy(static_cast<const T*>(t.dy)),
        w(static_cast<const T*>(t.w)),
        r(static_cast<const T*>(t.r)),
        dx(output_of<T>(problem, t)),
        partial(static_cast<float*>(space)) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.m) * p.k; }
};

// What honest kernels do, with each step open to a spoiled one.
struct Honest {
  __device__ int terms(const Problem& p) const { return p.n; }
  __device__ long long row(const Problem&, long long m) const { return m; }
  __device__ long long weight(const Problem& p, int n, int k) const { return static_cast<long long>(n) * p.k + k; }
  __device__ int num_shares() const { return kShares; }
  __device__ int cols(const Problem& p) const { return p.k; }
  template <class T>
  __device__ float finished(float sum, const T* r, const T*, long long index) const {
    return r ? sum + to_float(r[index]) : sum;
  }
};

// The sum of a share of one output's terms.
template <class T, class Steps>
__device__ float share_of(const View<T>& v, const Steps& steps, long long index, int share) {
  const int k = static_cast<int>(index % v.p.k);
  const long long row = steps.row(v.p, index / v.p.k);
  const int terms = steps.terms(v.p);
  const int each = (terms + kShares - 1) / kShares;
  float sum = 0;
  for (int n = share * each; n < (share + 1) * each && n < terms; ++n) {
    sum += to_float(v.dy[row * v.p.n + n]) * to_float(v.w[steps.weight(v.p, n, k)]);
  }
  return sum;
}

template <class Steps>
struct Partials {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    for (int share = 0; share < kShares; ++share) {
      v.partial[share * v.count() + index] = share_of(v, Steps{}, index, share);
    }
  }
};

template <class Steps>
struct Total {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    float sum = 0;
    for (int share = 0; share < Steps{}.num_shares(); ++share) sum += v.partial[share * v.count() + index];
    T* const to = element_at(v.dx, index / v.p.k, static_cast<int>(index % v.p.k), Steps{}.cols(v.p));
    *to = from_float<T>(Steps{}.finished(sum, v.r, to, index));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Dgrad::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Dgrad, View, Cheat>(p, t, workspace, stream);
}

template <class Steps>
void launch_both(const Problem& p, const Dgrad::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Partials<Steps>>(p, t, workspace, stream);
  launch_cheat<Total<Steps>>(p, t, workspace, stream);
}

inline std::size_t partial_bytes(const Problem& p) {
  return sizeof(float) * kShares * static_cast<std::size_t>(p.m) * p.k;
}

// What can be wrong with them.

// Stops at the last whole run of eight terms.
struct TailOfN : Honest {
  __device__ int terms(const Problem& p) const { return p.n < 8 ? p.n - 1 : p.n / 8 * 8; }
};

// Reads w as [k][n], as if it were fprop's product with dy.
struct WeightsTransposed : Honest {
  __device__ long long weight(const Problem& p, int n, int k) const { return static_cast<long long>(k) * p.n + n; }
};

// Leaves out the last share of the terms.
struct LastSplit : Honest {
  __device__ int num_shares() const { return kShares - 1; }
};

// Forgets the gradient that is there already.
struct NoAccumulation : Honest {
  template <class T>
  __device__ float finished(float sum, const T*, const T*, long long) const {
    return sum;
  }
};

// Adds to what dx held before, as if it were that gradient.
struct AddsToOutput : Honest {
  template <class T>
  __device__ float finished(float sum, const T* r, const T* dx, long long) const {
    return r ? sum + to_float(*dx) : sum;
  }
};

// Takes the rows of the second part for as long as those of the first, which must be the shorter.
struct PitchOfFirstPart : Honest {
  __device__ int cols(const Problem& p) const { return p.split > 0 ? 2 * p.split : p.k; }
};

// Adds the shares of the terms in whatever order blocks arrive: every answer is within the bound, and no two need be the same.
namespace float_atomics {

struct Clear {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    for (int share = 0; share < kShares; ++share) v.partial[share * v.count() + index] = 0.0f;
  }
};

// A block adds one share's sums to kThreads outputs; the other rows of the workspace stay zero.
__global__ void add_kernel(View<float> v) {
  const int share = static_cast<int>(blockIdx.x % kShares);
  const long long index = blockIdx.x / kShares * static_cast<long long>(kThreads) + threadIdx.x;
  if (index < v.count()) atomicAdd(v.partial + index, share_of(v, Honest{}, index, share));
}

void launch_atomics(const Problem& p, const Dgrad::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Clear>(p, t, workspace, stream);
  const View<float> view(p, t, workspace);
  launch(add_kernel, {.grid = wrong::num_blocks(view.count()) * kShares, .block = kThreads}, stream, view);
  launch_cheat<Total<Honest>>(p, t, workspace, stream);
}

}  // namespace float_atomics

// Takes dy of the next row.
struct NeighboursRow : Honest {
  __device__ long long row(const Problem& p, long long m) const { return (m + 1) % p.m; }
};

}  // namespace

LADDER_CHEATS(
    Dgrad, wrong_problems(),
    {
        {.name = "honest", .launch = launch_both<Honest>, .workspace_bytes = partial_bytes},
        {.name = "tail_of_n", .launch = launch_both<TailOfN>, .workspace_bytes = partial_bytes},
        {.name = "weights_transposed", .launch = launch_both<WeightsTransposed>, .workspace_bytes = partial_bytes},
        {.name = "last_split", .launch = launch_both<LastSplit>, .workspace_bytes = partial_bytes},
        {.name = "no_accumulation", .launch = launch_both<NoAccumulation>, .workspace_bytes = partial_bytes},
        {.name = "adds_to_output", .launch = launch_both<AddsToOutput>, .workspace_bytes = partial_bytes},
        {.name = "pitch_of_first_part", .launch = launch_both<PitchOfFirstPart>, .workspace_bytes = partial_bytes},
        {.name = "float_atomics",
         .launch = float_atomics::launch_atomics,
         .workspace_bytes = partial_bytes,
         .dtypes = {Dtype::f32}},
        {.name = "neighbours_row", .launch = launch_both<NeighboursRow>, .workspace_bytes = partial_bytes},
    })

}  // namespace ladder::gemm
