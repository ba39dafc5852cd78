#include "dev/optimizer/optimizer.h"
#include "tests/wrong/wrong.h"

namespace ladder::optimizer {
namespace {

// A sum where a mean is asked for.
void sum(Problem& p) { p.parts = 1; }

// Forgets the batches before.
void overwrites(Problem& p) { p.first = true; }

// Whole quads, and drops the rest.
void whole_quads(Problem& p) { p.p = p.p / 4 * 4; }

// A running mean: the batches before are scaled again.
struct ScalesBoth {
  __device__ void operator()(const auto& v, long long i) const {
    v.t.g[i] = (v.load(v.t.d, i) + (v.p.first ? 0.0f : v.t.g[i])) / static_cast<float>(v.p.parts);
  }
};

void scales_both(const Problem& p, const Accumulate::Tensors& t, void*, Stream stream) {
  wrong::launch_each<Accumulate>(p, t, stream, p.p, ScalesBoth{});
}

// Gradients are kept in bf16.
struct RoundedSum {
  __device__ void operator()(const auto& v, long long i) const {
    v.t.g[i] = to_float(from_float<__nv_bfloat16>(v.t.g[i]));
  }
};

}  // namespace

LADDER_CHEATS(Accumulate, (std::vector<std::string>{"p103 tensors3 parts2 first", "p203 tensors5 parts3"}),
              {
                  wrong::honest<Accumulate>(),
                  wrong::spoiled_problem<Accumulate, sum>("sum"),
                  wrong::spoiled_problem<Accumulate, overwrites>("overwrites"),
                  {.name = "scales_both", .launch = scales_both},
                  wrong::spoiled_problem<Accumulate, whole_quads>("whole_quads"),
                  wrong::spoiled_output<Accumulate, &Problem::p, RoundedSum>("rounded_sum"),
              })

}  // namespace ladder::optimizer
