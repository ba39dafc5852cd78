// Honest forward kernels, to spoil in one way each: partial sums of shares of the terms, then their sum with bias, residual
// and activation.
#include "dev/gemm/gemm.h"
#include "tests/wrong/gemm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::gemm {
namespace {

using wrong::kThreads;

constexpr int kShares = 4;

template <class T>
struct View {
  Problem p;
  const T* x;
  const T* w;
  const float* bias;
  const T* r;
  T* y;
  float* partial;  // [kShares][count()]

  View(const Problem& problem, const Fprop::Tensors& t, void* space)
      : p(problem),
        x(static_cast<const T*>(t.x)),
        w(static_cast<const T*>(t.w)),
        bias(t.bias),
        r(static_cast<const T*>(t.r)),
        y(static_cast<T*>(t.y)),
        partial(static_cast<float*>(space)) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.m) * p.n; }
};

// What honest kernels do, with each step open to a spoiled one.
struct Honest {
  __device__ int terms(const Problem& p) const { return p.k; }
  __device__ long long weight(const Problem& p, int n, int k) const { return static_cast<long long>(n) * p.k + k; }
  __device__ int num_shares() const { return kShares; }
  __device__ float bias(const float* bias, const Problem&, int n) const { return bias ? bias[n] : 0.0f; }
  template <class T>
  __device__ float residual(const T* r, long long index) const {
    return r ? to_float(r[index]) : 0.0f;
  }
  __device__ float activated(const Problem& p, float z) const { return p.silu ? z / (1.0f + expf(-z)) : z; }
  // Bias, residual and activation in their order.
  __device__ float finished(const auto& steps, const Problem& p, float sum, float bias, float residual) const {
    return steps.activated(p, sum + bias + residual);
  }
};

// The sum of a share of one output's terms.
template <class T, class Steps>
__device__ float share_of(const View<T>& v, const Steps& steps, long long index, int share) {
  const int n = static_cast<int>(index % v.p.n);
  const long long m = index / v.p.n;
  const int terms = steps.terms(v.p);
  const int each = (terms + kShares - 1) / kShares;
  float sum = 0;
  for (int k = share * each; k < (share + 1) * each && k < terms; ++k) {
    sum += to_float(v.x[m * v.p.k + k]) * to_float(v.w[steps.weight(v.p, n, k)]);
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
    const Steps steps;
    float sum = 0;
    for (int share = 0; share < steps.num_shares(); ++share) sum += v.partial[share * v.count() + index];
    const float bias = steps.bias(v.bias, v.p, static_cast<int>(index % v.p.n));
    v.y[index] = from_float<T>(steps.finished(steps, v.p, sum, bias, steps.residual(v.r, index)));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Fprop, View, Cheat>(p, t, workspace, stream);
}

template <class Steps>
void launch_both(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Partials<Steps>>(p, t, workspace, stream);
  launch_cheat<Total<Steps>>(p, t, workspace, stream);
}

inline std::size_t partial_bytes(const Problem& p) {
  return sizeof(float) * kShares * static_cast<std::size_t>(p.m) * p.n;
}

// What can be wrong with them.

// Stops at the last whole run of eight terms.
struct TailOfK : Honest {
  __device__ int terms(const Problem& p) const { return p.k < 8 ? p.k : p.k / 8 * 8; }
};

// Reads w as [k][n].
struct WeightsNotTransposed : Honest {
  __device__ long long weight(const Problem& p, int n, int k) const { return static_cast<long long>(k) * p.n + n; }
};

// Forgets the residual.
struct NoResidual : Honest {
  template <class T>
  __device__ float residual(const T*, long long) const {
    return 0.0f;
  }
};

// Adds the bias of the next column.
struct NeighboursBias : Honest {
  __device__ float bias(const float* bias, const Problem& p, int n) const { return bias ? bias[(n + 1) % p.n] : 0.0f; }
};

// Applies SiLU to the product and adds bias and residual behind it.
struct SiluBeforeBias : Honest {
  __device__ float finished(const auto& steps, const Problem& p, float sum, float bias, float residual) const {
    return steps.activated(p, sum) + bias + residual;
  }
};

// Adds the residual behind SiLU.
struct SiluBeforeResidual : Honest {
  __device__ float finished(const auto& steps, const Problem& p, float sum, float bias, float residual) const {
    return steps.activated(p, sum + bias) + residual;
  }
};

// Leaves out the activation.
struct NoSilu : Honest {
  __device__ float activated(const Problem&, float z) const { return z; }
};

// Leaves out the last share of the terms.
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

void launch_atomics(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Clear>(p, t, workspace, stream);
  const View<float> view(p, t, workspace);
  launch(add_kernel, {.grid = wrong::num_blocks(view.count()) * kShares, .block = kThreads}, stream, view);
  launch_cheat<Total<Honest>>(p, t, workspace, stream);
}

}  // namespace float_atomics

}  // namespace

LADDER_CHEATS(
    Fprop, wrong_problems(),
    {
        {.name = "honest", .launch = launch_both<Honest>, .workspace_bytes = partial_bytes},
        {.name = "tail_of_k", .launch = launch_both<TailOfK>, .workspace_bytes = partial_bytes},
        {.name = "weights_not_transposed",
         .launch = launch_both<WeightsNotTransposed>,
         .workspace_bytes = partial_bytes},
        {.name = "no_residual", .launch = launch_both<NoResidual>, .workspace_bytes = partial_bytes},
        {.name = "neighbours_bias", .launch = launch_both<NeighboursBias>, .workspace_bytes = partial_bytes},
        {.name = "silu_before_bias", .launch = launch_both<SiluBeforeBias>, .workspace_bytes = partial_bytes},
        {.name = "silu_before_residual", .launch = launch_both<SiluBeforeResidual>, .workspace_bytes = partial_bytes},
        {.name = "no_silu", .launch = launch_both<NoSilu>, .workspace_bytes = partial_bytes},
        {.name = "last_split", .launch = launch_both<LastSplit>, .workspace_bytes = partial_bytes},
        {.name = "float_atomics",
         .launch = float_atomics::launch_atomics,
         .workspace_bytes = partial_bytes,
         .dtypes = {Dtype::f32}},
    })

}  // namespace ladder::gemm
