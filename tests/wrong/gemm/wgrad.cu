#include <algorithm>

#include "tests/wrong/chunks.h"
#include "tests/wrong/gemm/problems.h"

namespace ladder::gemm {
namespace {

using Tensors = Wgrad::Tensors;
using Dw = wrong::Output<&Tensors::dw, size_nk>;
using Dbias = wrong::Output<&Tensors::dbias, &Problem::n>;

// Stops at the last whole run of eight rows.
void tail_of_rows(Problem& p) { p.m = p.m / 8 * 8; }

// Takes the first kDw chunks of the rows for dw, the first kDbias for dbias.
template <int kDw, int kDbias>
void first_chunks(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  const int rows_per_chunk = (p.m + wrong::kChunks - 1) / wrong::kChunks;
  Problem rows = p;
  Tensors dw_alone = t;
  rows.m = std::min(p.m, kDbias * rows_per_chunk);
  wrong::launch_honest<Wgrad>(rows, t, workspace, stream);
  rows.m = std::min(p.m, kDw * rows_per_chunk);
  rows.bias = false;
  dw_alone.dbias = nullptr;
  wrong::launch_honest<Wgrad>(rows, dw_alone, workspace, stream);
}

struct Terms {
  static constexpr auto kInput = &Tensors::dy;
  static long long elements(const Problem& p) { return size_mn(p); }
  __device__ static int count(const Problem& p) { return p.m; }
  __device__ static int of(const Problem& p, long long i) { return static_cast<int>(i / p.n); }
};

// Adds up columns of x for dbias.
struct DbiasFromX {
  __device__ void operator()(const auto& v, long long n) const {
    if (!v.t.dbias) return;
    float sum = 0;
    for (long long m = 0; m < v.p.m; ++m) sum += v.load(v.t.x, m * v.p.k + n % v.p.k);
    v.t.dbias[n] = sum;
  }
};

// Adds up dbias in its own 16 bits.
struct NarrowDbias {
  __device__ void operator()(const auto& v, long long n) const {
    if (!v.t.dbias || !v.p.params16) return;
    void* const dbias = v.t.dbias;
    v.store(dbias, n, 0.0f);
    for (long long m = 0; m < v.p.m; ++m) v.store(dbias, n, v.load(dbias, n) + v.load(v.t.dy, m * v.p.n + n));
  }
};

// Writes the sum of the next column to dbias.
struct NeighboursDbias {
  __device__ long long operator()(const Problem& p, long long n) const { return (n + p.n - 1) % p.n; }
};

}  // namespace

LADDER_CHEATS(Wgrad, wrong_problems(),
              {
                  wrong::honest<Wgrad>(),
                  wrong::spoiled_problem<Wgrad, tail_of_rows>("tail_of_rows"),
                  {.name = "last_split", .launch = first_chunks<wrong::kChunks - 1, wrong::kChunks>},
                  wrong::float_atomics<Wgrad, Terms, Dw, Dbias>(),
                  wrong::spoiled_output<Wgrad, &Problem::n, DbiasFromX>("dbias_from_x"),
                  wrong::only({Dtype::bf16, Dtype::f16},
                              wrong::spoiled_output<Wgrad, &Problem::n, NarrowDbias>("narrow_dbias")),
                  wrong::moved_output<Wgrad, &Tensors::dbias, &Problem::n, NeighboursDbias>("neighbours_dbias"),
                  wrong::moved_output<Wgrad, &Tensors::dw, size_nk, Transposed>("transposed_dw"),
                  wrong::bf16_partials<Wgrad, Terms, Dw, Dbias>(),
                  {.name = "dbias_of_first_split", .launch = first_chunks<wrong::kChunks, 1>},
              })

}  // namespace ladder::gemm
