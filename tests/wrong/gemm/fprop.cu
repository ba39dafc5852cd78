#include "dev/gemm/bf16_parts.h"
#include "tests/wrong/chunks.h"
#include "tests/wrong/gemm/problems.h"

namespace ladder::gemm {
namespace {

using Tensors = Fprop::Tensors;

// Stop at the last whole run of eight terms.
struct TailOfK {
  __device__ float operator()(const auto& v, long long i) const {
    return v.p.k < 8 || i % v.p.k < v.p.k / 8 * 8 ? v.load(v.t.x, i) : 0.0f;
  }
};

// Returns bias[n], stored in x's type with params16, else in fp32.
__device__ float bias_of(const auto& v, long long n) {
  return v.p.params16 ? v.load(static_cast<const void*>(v.t.bias), n) : v.t.bias[n];
}

// Read the other half of a 32-bit word as the bias, if the bias has 16 bits.
struct OtherHalf {
  __device__ void operator()(const auto& v, long long i) const {
    if (!v.t.bias || !v.p.params16) return;
    const long long n = i % v.p.n;
    v.store(v.t.y, i, v.load(v.t.y, i) - bias_of(v, n) + bias_of(v, n ^ 1));
  }
};

// Leave out the residual.
void no_residual(Problem& p, Tensors& t) {
  p.residual = false;
  t.r = nullptr;
}

// Add the bias of the next column.
struct NextColumn {
  __device__ long long operator()(const Problem& p, long long n) const { return (n + 1) % p.n; }
};

__device__ float silu(const Problem& p, float z) { return p.silu ? z / (1.0f + expf(-z)) : z; }

// Add the residual after SiLU; with kBias the bias too.
template <bool kBias>
struct EarlySilu {
  __device__ void operator()(const auto& v, long long i) const {
    const long long n = i % v.p.n;
    float sum = 0;
    for (int k = 0; k < v.p.k; ++k) sum += v.load(v.t.x, i / v.p.n * v.p.k + k) * v.load(v.t.w, n * v.p.k + k);
    const float bias = v.t.bias ? bias_of(v, n) : 0.0f;
    const float y = kBias ? silu(v.p, sum) + bias : silu(v.p, sum + bias);
    v.store(v.t.y, i, v.t.r ? y + v.load(v.t.r, i) : y);
  }
};

// Drop the products of first and third bf16 parts of fp32 factors, which are 2^-16 of a term.
struct WithoutThirdParts {
  __device__ void operator()(const auto& v, long long i) const {
    float dropped = 0;
    for (int k = 0; k < v.p.k; ++k) {
      float x[3], w[3];
      bf16_parts(v.load(v.t.x, i / v.p.n * v.p.k + k), x);
      bf16_parts(v.load(v.t.w, i % v.p.n * v.p.k + k), w);
      dropped += x[0] * w[2] + x[2] * w[0];
    }
    v.store(v.t.y, i, v.load(v.t.y, i) - dropped);
  }
};

// Leave out the activation.
void no_silu(Problem& p) { p.silu = false; }

struct Terms {
  static constexpr auto kInput = &Tensors::x;
  static long long elements(const Problem& p) { return size_mk(p); }
  __device__ static int count(const Problem& p) { return p.k; }
  __device__ static int of(const Problem& p, long long i) { return static_cast<int>(i % p.k); }
  static void only_terms(Problem& p, Tensors& t) {
    no_residual(p, t);
    p.bias = false;
    t.bias = nullptr;
  }
};

struct Silu {
  __device__ void operator()(const auto& v, long long i) const { v.store(v.t.y, i, silu(v.p, v.load(v.t.y, i))); }
};

void float_atomics(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  Problem sum = p;
  no_silu(sum);
  wrong::launch_atomics<Fprop, Terms, wrong::Output<&Tensors::y, size_mn>>(sum, t, workspace, stream);
  wrong::launch_each<Fprop>(p, t, stream, size_mn(p), Silu{});
}

}  // namespace

LADDER_CHEATS(
    Fprop, wrong_problems(),
    {
        wrong::honest<Fprop>(),
        wrong::spoiled_input<Fprop, &Tensors::x, size_mk, TailOfK>("tail_of_k"),
        wrong::moved_input<Fprop, &Tensors::w, size_nk, Transposed>("weights_not_transposed"),
        wrong::spoiled_problem<Fprop, no_residual>("no_residual"),
        wrong::moved_input<Fprop, &Tensors::bias, &Problem::n, NextColumn>("neighbours_bias"),
        wrong::only({Dtype::bf16, Dtype::f16}, wrong::spoiled_output<Fprop, size_mn, OtherHalf>("other_half_of_bias")),
        wrong::other_kernel<Fprop, size_mn, EarlySilu<true>>("silu_before_bias"),
        wrong::other_kernel<Fprop, size_mn, EarlySilu<false>>("silu_before_residual"),
        wrong::spoiled_problem<Fprop, no_silu>("no_silu"),
        wrong::last_chunk<Fprop, Terms, 0>("last_split"),
        wrong::only({Dtype::f32}, wrong::spoiled_output<Fprop, size_mn, WithoutThirdParts>("without_third_parts")),
        {.name = "float_atomics", .launch = float_atomics, .dtypes = {Dtype::f32}},
    })

}  // namespace ladder::gemm
