#include "tests/wrong/layernorm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::layernorm {
namespace {

using Tensors = Backward::Tensors;

enum class Fault {
  none,
  no_a,              // leaves A out of dx, as if the mean did not depend on x
  no_b,              // leaves B out of dx, as if the deviation did not depend on x
  next_row,          // A and B of the neighbouring row
  tail,              // reads columns in pairs, and drops the last one or two from A and B
  no_gamma_in_sums,  // A and B of dy instead of gamma * dy
  no_rstd,           // dx with respect to xhat
  bf16_sums,         // adds up in bf16
  dgamma_of_x,       // dgamma of dy * (x - mean), without rstd
  last_row,          // dgamma and dbeta without the last row
};

struct Sums {
  float plain = 0;  // A or dbeta
  float xhat = 0;   // B or dgamma
};

__device__ float xhat_at(const auto& v, long long index) {
  const int row = row_of(v.p, index);
  return (v.load(v.t.x, index) - v.t.mean[row]) * v.t.rstd[row];
}

template <Fault kFault>
__device__ void add(Sums& sums, float term, float xhat) {
  const auto rounded = [](float x) { return kFault == Fault::bf16_sums ? to_float(from_float<__nv_bfloat16>(x)) : x; };
  sums.plain = rounded(sums.plain + term);
  sums.xhat = rounded(sums.xhat + term * xhat);
}

template <Fault kFault>
__device__ void write_dx(const auto& v, long long index) {
  const Problem& p = v.p;
  const int row = kFault == Fault::next_row ? (row_of(p, index) + 1) % p.m : row_of(p, index);
  const int count = kFault == Fault::tail && p.n > 2 ? (p.n - 1) / 2 * 2 : p.n;
  Sums ab;
  for (int c = 0; c < count; ++c) {
    const long long i = static_cast<long long>(row) * p.n + c;
    add<kFault>(ab, (kFault == Fault::no_gamma_in_sums ? 1.0f : v.t.gamma[c]) * v.load(v.t.dy, i), xhat_at(v, i));
  }
  if (kFault == Fault::no_a) ab.plain = 0;
  if (kFault == Fault::no_b) ab.xhat = 0;
  const float g = v.t.gamma[column_of(p, index)] * v.load(v.t.dy, index);
  const float gradient = g - (ab.plain + xhat_at(v, index) * ab.xhat) / static_cast<float>(p.n);
  v.store(v.t.dx, index, kFault == Fault::no_rstd ? gradient : v.t.rstd[row_of(p, index)] * gradient);
}

// An element of dx a thread, whose row's A and B it makes anew, then a column of dgamma and dbeta.
template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long index) const {
    const long long num_elements = static_cast<long long>(v.p.m) * v.p.n;
    if (index < num_elements) return write_dx<kFault>(v, index);
    const int column = static_cast<int>(index - num_elements);
    Sums sums;
    for (int row = 0; row < v.p.m - (kFault == Fault::last_row ? 1 : 0); ++row) {
      const long long i = static_cast<long long>(row) * v.p.n + column;
      const float distance = kFault == Fault::dgamma_of_x ? v.load(v.t.x, i) - v.t.mean[row] : xhat_at(v, i);
      add<kFault>(sums, v.load(v.t.dy, i), distance);
    }
    v.t.dbeta[column] = sums.plain;
    v.t.dgamma[column] = sums.xhat;
  }
};

long long num_outputs(const Problem& p) { return p.elements() + p.n; }

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Backward, num_outputs, Faulty<kFault>>;

// dbeta in dgamma's place.
struct DgammaWithoutXhat {
  __device__ void operator()(const auto& v, long long column) const { v.t.dgamma[column] = v.t.dbeta[column]; }
};

struct Clear {
  __device__ void operator()(const auto& v, long long column) const { v.t.dgamma[column] = v.t.dbeta[column] = 0; }
};

// One element's terms of dgamma and dbeta, into whatever is there.
struct Add {
  __device__ void operator()(const auto& v, long long index) const {
    const float dy = v.load(v.t.dy, index);
    atomicAdd(v.t.dgamma + column_of(v.p, index), dy * xhat_at(v, index));
    atomicAdd(v.t.dbeta + column_of(v.p, index), dy);
  }
};

// Adds into gradients that it leaves to somebody else to clear.
void uncleared_atomics(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  Tensors others = t;
  others.dgamma = static_cast<float*>(wrong::room_for_copies<Backward>(p, workspace));
  others.dbeta = others.dgamma + p.n;
  wrong::launch_honest<Backward>(p, others, workspace, stream);
  wrong::launch_each<Backward>(p, t, stream, p.elements(), Add{});
}

// Adds up in whatever order threads arrive: every answer is within the bound, and no two need be the same.
void float_atomics(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  wrong::launch_each<Backward>(p, t, stream, p.n, Clear{});
  uncleared_atomics(p, t, workspace, stream);
}

}  // namespace

LADDER_CHEATS(Backward, wrong_problems(),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::no_a>("no_a"),
                  faulty<Fault::no_b>("no_b"),
                  faulty<Fault::next_row>("next_row"),
                  faulty<Fault::tail>("tail"),
                  faulty<Fault::no_gamma_in_sums>("no_gamma_in_sums"),
                  faulty<Fault::no_rstd>("no_rstd"),
                  faulty<Fault::bf16_sums>("bf16_sums"),
                  faulty<Fault::dgamma_of_x>("dgamma_of_x"),
                  faulty<Fault::last_row>("last_row"),
                  wrong::spoiled_output<Backward, &Problem::n, DgammaWithoutXhat>("dgamma_without_xhat"),
                  {.name = "uncleared_atomics", .launch = uncleared_atomics},
                  {.name = "float_atomics", .launch = float_atomics},
              })

}  // namespace ladder::layernorm
