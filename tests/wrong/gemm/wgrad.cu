// Honest kernels for the gradients of the weights and the bias, to spoil in one way each: partial sums of shares of the
// rows, then their sum.
#include "dev/gemm/gemm.h"
#include "tests/wrong/gemm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::gemm {
namespace {

using wrong::kThreads;

constexpr int kShares = 4;

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

  __host__ __device__ long long num_weights() const { return static_cast<long long>(p.n) * p.k; }
  __host__ __device__ long long count() const { return num_weights() + (dbias ? p.n : 0); }
  __device__ bool is_bias(long long index) const { return index >= num_weights(); }
};

// What honest kernels do, with each step open to a spoiled one.
struct Honest {
  __device__ int terms(const Problem& p) const { return p.m; }
  __device__ const void* of_bias(const void* /*x*/, const void* dy) const { return dy; }
  __device__ int bias_column(const Problem&, int n) const { return n; }
  __device__ float rounded(float sum) const { return sum; }
  __device__ int num_shares() const { return kShares; }
  __device__ int num_bias_shares() const { return kShares; }
  __device__ long long place(const Problem& p, int n, int k) const { return static_cast<long long>(n) * p.k + k; }
};

// The sum of a share of one output's terms.
template <class T, class Steps>
__device__ float share_of(const View<T>& v, const Steps& steps, long long index, int share) {
  const Problem& p = v.p;
  const bool is_bias = v.is_bias(index);
  const int n = static_cast<int>(is_bias ? index - v.num_weights() : index / p.k);
  const T* const summed = static_cast<const T*>(steps.of_bias(v.x, v.dy));
  const int columns = summed == v.dy ? p.n : p.k;
  const int terms = steps.terms(p);
  const int each = (terms + kShares - 1) / kShares;
  float sum = 0;
  for (long long m = share * each; m < (share + 1) * each && m < terms; ++m) {
    sum += is_bias ? to_float(summed[m * columns + steps.bias_column(p, n) % columns])
                   : to_float(v.dy[m * p.n + n]) * to_float(v.x[m * p.k + index % p.k]);
  }
  return sum;
}

template <class Steps>
struct Partials {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Steps steps;
    for (int share = 0; share < kShares; ++share) {
      v.partial[share * v.count() + index] = steps.rounded(share_of(v, steps, index, share));
    }
  }
};

template <class Steps>
struct Total {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Steps steps;
    const bool is_bias = v.is_bias(index);
    float sum = 0;
    for (int share = 0; share < (is_bias ? steps.num_bias_shares() : steps.num_shares()); ++share) {
      sum += v.partial[share * v.count() + index];
    }
    if (is_bias) {
      v.dbias[index - v.num_weights()] = sum;
    } else {
      v.dw[steps.place(v.p, static_cast<int>(index / v.p.k), static_cast<int>(index % v.p.k))] = from_float<T>(sum);
    }
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

inline std::size_t partial_bytes(const Problem& p) {
  return sizeof(float) * kShares * (static_cast<std::size_t>(p.n) * p.k + p.n);
}

// What can be wrong with them.

// Stops at the last whole run of eight rows.
struct TailOfRows : Honest {
  __device__ int terms(const Problem& p) const { return p.m / 8 * 8; }
};

// Leaves out the last share of the rows.
struct LastSplit : Honest {
  __device__ int num_shares() const { return kShares - 1; }
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

void launch_atomics(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Clear>(p, t, workspace, stream);
  const View<float> view(p, t, workspace);
  launch(add_kernel, {.grid = wrong::num_blocks(view.count()) * kShares, .block = kThreads}, stream, view);
  launch_cheat<Total<Honest>>(p, t, workspace, stream);
}

}  // namespace float_atomics

// Adds up columns of x for dbias.
struct DbiasFromX : Honest {
  __device__ const void* of_bias(const void* x, const void*) const { return x; }
};

// Writes the sum of the next column to dbias.
struct NeighboursDbias : Honest {
  __device__ int bias_column(const Problem& p, int n) const { return (n + 1) % p.n; }
};

// Writes dw as [k][n].
struct TransposedDw : Honest {
  __device__ long long place(const Problem& p, int n, int k) const { return static_cast<long long>(k) * p.n + n; }
};

// Keeps the shares' sums in bf16.
struct Bf16Partials : Honest {
  __device__ float rounded(float sum) const { return __bfloat162float(__float2bfloat16_rn(sum)); }
};

// Takes the first share of the rows for all of dbias.
struct DbiasOfFirstSplit : Honest {
  __device__ int num_bias_shares() const { return 1; }
};

}  // namespace

LADDER_CHEATS(
    Wgrad, wrong_problems(),
    {
        {.name = "honest", .launch = launch_both<Honest>, .workspace_bytes = partial_bytes},
        {.name = "tail_of_rows", .launch = launch_both<TailOfRows>, .workspace_bytes = partial_bytes},
        {.name = "last_split", .launch = launch_both<LastSplit>, .workspace_bytes = partial_bytes},
        {.name = "float_atomics",
         .launch = float_atomics::launch_atomics,
         .workspace_bytes = partial_bytes,
         .dtypes = {Dtype::f32}},
        {.name = "dbias_from_x", .launch = launch_both<DbiasFromX>, .workspace_bytes = partial_bytes},
        {.name = "neighbours_dbias", .launch = launch_both<NeighboursDbias>, .workspace_bytes = partial_bytes},
        {.name = "transposed_dw", .launch = launch_both<TransposedDw>, .workspace_bytes = partial_bytes},
        {.name = "bf16_partials", .launch = launch_both<Bf16Partials>, .workspace_bytes = partial_bytes},
        {.name = "dbias_of_first_split", .launch = launch_both<DbiasOfFirstSplit>, .workspace_bytes = partial_bytes},
    })

}  // namespace ladder::gemm
