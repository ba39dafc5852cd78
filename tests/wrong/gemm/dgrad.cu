#include "tests/wrong/chunks.h"
#include "tests/wrong/gemm/problems.h"

namespace ladder::gemm {
namespace {

using Tensors = Dgrad::Tensors;

// Columns of dx and of dx_rest.
__host__ __device__ inline int cols(const Problem& p) { return p.split > 0 ? p.split : p.k; }
__host__ __device__ inline int rest_cols(const Problem& p) { return p.k - cols(p); }
inline long long size_dx(const Problem& p) { return static_cast<long long>(p.m) * cols(p); }
inline long long size_rest(const Problem& p) { return static_cast<long long>(p.m) * rest_cols(p); }

// Stops at the last whole run of eight terms.
struct TailOfN {
  __device__ float operator()(const auto& v, long long i) const {
    return i % v.p.n < (v.p.n < 8 ? v.p.n - 1 : v.p.n / 8 * 8) ? v.load(v.t.dy, i) : 0.0f;
  }
};

// Forgets the gradient that is there already.
void no_accumulation(Problem& p, Tensors& t) {
  p.accumulate = false;
  t.r = nullptr;
}

// Adds to what dx held before, as if it were that gradient.
struct HeldBefore {
  __device__ float operator()(const auto& v, long long i) const {
    if (!v.t.r) return 0.0f;
    const long long row = i / v.p.k;
    const int col = static_cast<int>(i % v.p.k);
    return col < cols(v.p) ? v.load(v.t.dx, row * cols(v.p) + col)
                           : v.load(v.t.dx_rest, row * rest_cols(v.p) + col - cols(v.p));
  }
};

// Takes the rows of the second part for as long as those of the first, which must be the shorter.
struct PitchOfFirstPart {
  __device__ long long operator()(const Problem& p, long long i) const {
    return i / rest_cols(p) * cols(p) + i % rest_cols(p);
  }
};

struct Terms {
  static constexpr auto kInput = &Tensors::dy;
  static long long elements(const Problem& p) { return size_mn(p); }
  __device__ static int count(const Problem& p) { return p.n; }
  __device__ static int of(const Problem& p, long long i) { return static_cast<int>(i % p.n); }
  static void only_terms(Problem& p, Tensors& t) { no_accumulation(p, t); }
};

// Takes dy of the next row.
struct NextRow {
  __device__ long long operator()(const Problem& p, long long i) const {
    return (i + p.n) % (static_cast<long long>(p.m) * p.n);
  }
};

}  // namespace

LADDER_CHEATS(Dgrad, wrong_problems_of_dgrad(),
              {
                  wrong::honest<Dgrad>(),
                  wrong::spoiled_input<Dgrad, &Tensors::dy, size_mn, TailOfN>("tail_of_n"),
                  wrong::moved_input<Dgrad, &Tensors::w, size_nk, Transposed>("weights_transposed"),
                  wrong::last_chunk<Dgrad, Terms, 0>("last_split"),
                  wrong::spoiled_problem<Dgrad, no_accumulation>("no_accumulation"),
                  wrong::spoiled_input<Dgrad, &Tensors::r, size_mk, HeldBefore>("adds_to_output"),
                  wrong::moved_output<Dgrad, &Tensors::dx_rest, size_rest, PitchOfFirstPart>("pitch_of_first_part"),
                  wrong::float_atomics<Dgrad, Terms, wrong::Output<&Tensors::dx, size_dx>,
                                       wrong::Output<&Tensors::dx_rest, size_rest>>(),
                  wrong::moved_input<Dgrad, &Tensors::dy, size_mn, NextRow>("neighbours_row"),
              })

}  // namespace ladder::gemm
