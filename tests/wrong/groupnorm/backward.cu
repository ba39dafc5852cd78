// An honest backward kernel, to spoil in one way each: every element's thread makes its group's A and B anew, every
// channel's thread its dgamma and dbeta.
#include "tests/wrong/groupnorm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::groupnorm {
namespace {

// What an element contributes, and what comes of many.
struct Term {
  float xhat;
  float dz;
};
struct Sums {
  float plain = 0;  // of dz: A or dbeta
  float xhat = 0;   // of dz * xhat: B or dgamma
};

// What an honest kernel does, with each step open to a spoiled one.
struct Honest {
  // The elements that a group's A and B, and a channel's gradients, are taken of.
  __device__ int group(const Problem&, int group) const { return group; }
  __device__ int pixels(const Problem& p) const { return p.h * p.w; }
  __device__ int channels(const Problem& p) const { return p.c / p.g; }
  __device__ int images(const Problem& p) const { return p.n; }

  __device__ float derivative(Activation activation, float z, float /*xhat*/) const {
    return derivative_of(activation, z);
  }
  __device__ float add(float sum, float term) const { return sum + term; }
  __device__ float gamma_in_sums(const float* gamma, int c) const { return gamma ? gamma[c] : 1.0f; }
  __device__ Sums corrected(Sums ab) const { return ab; }
  __device__ float scale(float rstd) const { return rstd; }
};

__device__ float gamma_of(const auto& v, int c) { return v.t.gamma ? v.t.gamma[c] : 1.0f; }

template <class Steps>
__device__ Term term_of(const auto& v, const Steps& steps, long long index) {
  const int c = channel_of(v.p, index);
  const int group = group_of(v.p, index);
  const float xhat = (v.load(v.t.x, index) - v.t.mean[group]) * v.t.rstd[group];
  const float z = gamma_of(v, c) * xhat + (v.t.beta ? v.t.beta[c] : 0.0f);
  return {.xhat = xhat, .dz = v.load(v.t.dy, index) * steps.derivative(v.p.activation, z, xhat)};
}

template <class Steps>
__device__ void add_term(const auto& v, const Steps& steps, long long index, float factor, Sums& sums) {
  const Term term = term_of(v, steps, index);
  sums.plain = steps.add(sums.plain, factor * term.dz);
  sums.xhat = steps.add(sums.xhat, factor * term.dz * term.xhat);
}

template <class Steps>
__device__ void write_dx(const auto& v, const Steps& steps, long long index) {
  const long long first = first_of(v.p, steps.group(v.p, group_of(v.p, index)));
  Sums sums;
  for (int pixel = 0; pixel < steps.pixels(v.p); ++pixel) {
    for (int c = 0; c < steps.channels(v.p); ++c) {
      const long long i = first + static_cast<long long>(pixel) * v.p.c + c;
      add_term(v, steps, i, steps.gamma_in_sums(v.t.gamma, channel_of(v.p, i)), sums);
    }
  }
  const Sums ab = steps.corrected(sums);
  const Term term = term_of(v, steps, index);
  const auto m = static_cast<float>(v.p.h * v.p.w * (v.p.c / v.p.g));
  const float gradient = gamma_of(v, channel_of(v.p, index)) * term.dz - (ab.plain + term.xhat * ab.xhat) / m;
  v.store(v.t.dx, index, steps.scale(v.t.rstd[group_of(v.p, index)]) * gradient);
}

__device__ void write_parameters(const auto& v, int c, const Sums& sums) {
  v.t.dgamma[c] = sums.xhat;
  v.t.dbeta[c] = sums.plain;
}

// An honest kernel with one spoiled step: an element of dx a thread, and then a channel of dgamma and dbeta.
template <class Steps>
struct Spoiled {
  __device__ void operator()(const auto& v, long long index) const {
    const long long num_elements = static_cast<long long>(v.p.n) * v.p.h * v.p.w * v.p.c;
    if (index < num_elements) return write_dx(v, Steps{}, index);
    const auto c = static_cast<int>(index - num_elements);
    Sums sums;
    for (int pixel = 0; pixel < Steps{}.images(v.p) * v.p.h * v.p.w; ++pixel) {
      add_term(v, Steps{}, static_cast<long long>(pixel) * v.p.c + c, 1.0f, sums);
    }
    write_parameters(v, c, sums);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Backward::Tensors& t, void*, Stream stream) {
  wrong::launch_each<Backward>(p, t, stream, p.elements() + (p.affine ? p.c : 0), Cheat{});
}

// What can be wrong with it.

// Leaves A out of dx, as if the mean did not depend on x.
struct NoA : Honest {
  __device__ Sums corrected(Sums ab) const { return {.plain = 0.0f, .xhat = ab.xhat}; }
};

// Leaves B out of dx, as if the deviation did not depend on x.
struct NoB : Honest {
  __device__ Sums corrected(Sums ab) const { return {.plain = ab.plain, .xhat = 0.0f}; }
};

// A and B of the neighbouring group.
struct NextGroup : Honest {
  __device__ int group(const Problem& p, int group) const { return (group + 1) % (p.n * p.g); }
};

// A and B without the last pixel.
struct TailOfPixels : Honest {
  __device__ int pixels(const Problem& p) const { return p.h * p.w - 1; }
};

// Reads channels in pairs, and drops the last of an odd number from A and B.
struct TailOfChannels : Honest {
  __device__ int channels(const Problem& p) const { return p.c / p.g / 2 * 2; }
};

// A and B of dz instead of gamma * dz, which parameters of one hide.
struct NoGammaInSums : Honest {
  __device__ float gamma_in_sums(const float*, int) const { return 1.0f; }
};

// Takes dy for dz.
void no_derivative(Problem& p) { p.activation = Activation::identity; }

// The activation's derivative in front of gamma and beta.
struct DerivativeAtXhat : Honest {
  __device__ float derivative(Activation activation, float /*z*/, float xhat) const {
    return derivative_of(activation, xhat);
  }
};

// dx with respect to xhat.
struct NoRstd : Honest {
  __device__ float scale(float /*rstd*/) const { return 1.0f; }
};

// Adds up in bf16.
struct Bf16Sums : Honest {
  __device__ float add(float sum, float term) const { return to_float(from_float<__nv_bfloat16>(sum + term)); }
};

// dgamma and dbeta without the last image.
struct LastImage : Honest {
  __device__ int images(const Problem& p) const { return p.n > 1 ? p.n - 1 : 1; }
};

// dbeta in dgamma's place.
struct DgammaWithoutXhat {
  __device__ void operator()(const auto& v, long long c) const {
    if (v.p.affine) v.t.dgamma[c] = v.t.dbeta[c];
  }
};

// Parts of an honest kernel, for cheats whose dgamma and dbeta are made in another way.
struct Dx {
  __device__ void operator()(const auto& v, long long index) const { write_dx(v, Honest{}, index); }
};

struct Clear {
  __device__ void operator()(const auto& v, long long c) const { write_parameters(v, static_cast<int>(c), {}); }
};

// One element's terms of dgamma and dbeta, into whatever is there.
struct Add {
  __device__ void operator()(const auto& v, long long index) const {
    const Term term = term_of(v, Honest{}, index);
    atomicAdd(v.t.dgamma + channel_of(v.p, index), term.dz * term.xhat);
    atomicAdd(v.t.dbeta + channel_of(v.p, index), term.dz);
  }
};

// Adds into gradients that it leaves to somebody else to clear.
void uncleared_atomics(const Problem& p, const Backward::Tensors& t, void*, Stream stream) {
  wrong::launch_each<Backward>(p, t, stream, p.elements(), Dx{});
  if (p.affine) wrong::launch_each<Backward>(p, t, stream, p.elements(), Add{});
}

// Adds up in whatever order threads arrive: every answer is within the bound, and no two need be the same.
void float_atomics(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  if (p.affine) wrong::launch_each<Backward>(p, t, stream, p.c, Clear{});
  uncleared_atomics(p, t, workspace, stream);
}

// The block of the highest index adds up what the others have left in the workspace, or will.
struct LastBlockTooEarly {
  static constexpr int kBlocks = 4;
  Sums* partial;  // [kBlocks][c]

  __device__ void operator()(const auto& v, long long) const {
    const int pixels = v.p.n * v.p.h * v.p.w;
    const int each = (pixels + kBlocks - 1) / kBlocks;
    const int begin = static_cast<int>(blockIdx.x) * each;
    for (int c = static_cast<int>(threadIdx.x); c < v.p.c; c += wrong::kThreads) {
      Sums sums;
      for (int pixel = begin; pixel < begin + each && pixel < pixels; ++pixel) {
        add_term(v, Honest{}, static_cast<long long>(pixel) * v.p.c + c, 1.0f, sums);
      }
      partial[blockIdx.x * v.p.c + c] = sums;
      if (blockIdx.x + 1 < kBlocks) continue;
      Sums total;
      for (int block = 0; block < kBlocks; ++block) {
        total.plain += partial[block * v.p.c + c].plain;
        total.xhat += partial[block * v.p.c + c].xhat;
      }
      write_parameters(v, c, total);
    }
  }
};

std::size_t partial_bytes(const Problem& p) {
  return p.affine ? std::size_t{LastBlockTooEarly::kBlocks} * p.c * sizeof(Sums) : 0;
}

void last_block_too_early(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_each<Backward>(p, t, stream, p.elements(), Dx{});
  const LastBlockTooEarly parameters{static_cast<Sums*>(workspace)};
  constexpr int kCount = LastBlockTooEarly::kBlocks * wrong::kThreads;
  if (p.affine) wrong::launch_each<Backward>(p, t, stream, kCount, parameters);
}

}  // namespace

LADDER_CHEATS(Backward, wrong_problems(),
              {
                  {.name = "honest", .launch = launch_cheat<Spoiled<Honest>>},
                  {.name = "no_a", .launch = launch_cheat<Spoiled<NoA>>},
                  {.name = "no_b", .launch = launch_cheat<Spoiled<NoB>>},
                  {.name = "next_group", .launch = launch_cheat<Spoiled<NextGroup>>},
                  {.name = "tail_of_pixels", .launch = launch_cheat<Spoiled<TailOfPixels>>},
                  {.name = "tail_of_channels", .launch = launch_cheat<Spoiled<TailOfChannels>>},
                  {.name = "no_gamma_in_sums", .launch = launch_cheat<Spoiled<NoGammaInSums>>},
                  wrong::spoiled_problem<Backward, no_derivative>("no_derivative"),
                  {.name = "derivative_at_xhat", .launch = launch_cheat<Spoiled<DerivativeAtXhat>>},
                  {.name = "no_rstd", .launch = launch_cheat<Spoiled<NoRstd>>},
                  {.name = "bf16_sums", .launch = launch_cheat<Spoiled<Bf16Sums>>},
                  {.name = "last_image", .launch = launch_cheat<Spoiled<LastImage>>},
                  wrong::spoiled_output<Backward, &Problem::c, DgammaWithoutXhat>("dgamma_without_xhat"),
                  {.name = "uncleared_atomics", .launch = uncleared_atomics},
                  {.name = "float_atomics", .launch = float_atomics},
                  {.name = "last_block_too_early", .launch = last_block_too_early, .workspace_bytes = partial_bytes},
              })

}  // namespace ladder::groupnorm
