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

// Outputs are counted as those of dx, then the channels of dgamma and dbeta.
template <class T>
struct View {
  Problem p;
  const T* x;
  const T* dy;
  const float* gamma;
  const float* beta;
  const float* mean;
  const float* rstd;
  T* dx;
  float* dgamma;
  float* dbeta;
  void* workspace;

  View(const Problem& problem, const Backward::Tensors& t, void* space)
      : p(problem),
        x(static_cast<const T*>(t.x)),
        dy(static_cast<const T*>(t.dy)),
        gamma(t.gamma),
        beta(t.beta),
        mean(t.mean),
        rstd(t.rstd),
        dx(static_cast<T*>(t.dx)),
        dgamma(t.dgamma),
        dbeta(t.dbeta),
        workspace(space) {}

  __host__ __device__ long long num_elements() const { return static_cast<long long>(p.n) * p.h * p.w * p.c; }
  __host__ __device__ long long count() const { return num_elements() + (dgamma ? p.c : 0); }
  __device__ int channel(long long index) const { return static_cast<int>(index % p.c); }
  __device__ int group(long long index) const {
    return static_cast<int>(index / p.c / (p.h * p.w)) * p.g + channel(index) / (p.c / p.g);
  }
  __device__ long long first(int group) const {
    return static_cast<long long>(group / p.g) * p.h * p.w * p.c + group % p.g * (p.c / p.g);
  }
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
  template <class T>
  __device__ Sums first(const View<T>&, int /*c*/) const {
    return {};
  }
  template <class T>
  __device__ void store(const View<T>& v, int c, const Sums& sums) const {
    v.dgamma[c] = sums.xhat;
    v.dbeta[c] = sums.plain;
  }
};

template <class T>
__device__ float gamma_of(const View<T>& v, int c) {
  return v.gamma ? v.gamma[c] : 1.0f;
}

template <class T, class Steps>
__device__ Term term_of(const View<T>& v, const Steps& steps, long long index) {
  const int c = v.channel(index);
  const int group = v.group(index);
  const float xhat = (to_float(v.x[index]) - v.mean[group]) * v.rstd[group];
  const float z = gamma_of(v, c) * xhat + (v.beta ? v.beta[c] : 0.0f);
  return {.xhat = xhat, .dz = to_float(v.dy[index]) * steps.derivative(v.p.activation, z, xhat)};
}

template <class T, class Steps>
__device__ void add_term(const View<T>& v, const Steps& steps, long long index, float factor, Sums& sums) {
  const Term term = term_of(v, steps, index);
  sums.plain = steps.add(sums.plain, factor * term.dz);
  sums.xhat = steps.add(sums.xhat, factor * term.dz * term.xhat);
}

template <class T, class Steps>
__device__ Sums sums_of_group(const View<T>& v, const Steps& steps, int group) {
  const long long first = v.first(steps.group(v.p, group));
  Sums ab;
  for (int pixel = 0; pixel < steps.pixels(v.p); ++pixel) {
    for (int c = 0; c < steps.channels(v.p); ++c) {
      const long long index = first + static_cast<long long>(pixel) * v.p.c + c;
      add_term(v, steps, index, steps.gamma_in_sums(v.gamma, v.channel(index)), ab);
    }
  }
  return ab;
}

template <class T, class Steps>
__device__ void write_dx(const View<T>& v, const Steps& steps, long long index, const Sums& sums) {
  const Sums ab = steps.corrected(sums);
  const Term term = term_of(v, steps, index);
  const auto m = static_cast<float>(v.p.h * v.p.w * (v.p.c / v.p.g));
  const float gradient = gamma_of(v, v.channel(index)) * term.dz - (ab.plain + term.xhat * ab.xhat) / m;
  v.dx[index] = from_float<T>(steps.scale(v.rstd[v.group(index)]) * gradient);
}

template <class T, class Steps>
__device__ void write_dx(const View<T>& v, const Steps& steps, long long index) {
  write_dx(v, steps, index, sums_of_group(v, steps, v.group(index)));
}

template <class T, class Steps>
__device__ void write_parameters(const View<T>& v, const Steps& steps, int c) {
  Sums sums = steps.first(v, c);
  for (int pixel = 0; pixel < steps.images(v.p) * v.p.h * v.p.w; ++pixel) {
    add_term(v, steps, static_cast<long long>(pixel) * v.p.c + c, 1.0f, sums);
  }
  steps.store(v, c, sums);
}

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    if (index < v.num_elements()) {
      write_dx(v, Steps{}, index);
    } else {
      write_parameters(v, Steps{}, static_cast<int>(index - v.num_elements()));
    }
  }
};

// Parts of it, for cheats whose dgamma and dbeta are made in another way.
struct Dx {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    if (index < v.num_elements()) write_dx(v, Honest{}, index);
  }
};

// One element's terms of dgamma and dbeta, into whatever is there.
struct Add {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    if (!v.dgamma || index >= v.num_elements()) return;
    const Term term = term_of(v, Honest{}, index);
    atomicAdd(v.dgamma + v.channel(index), term.dz * term.xhat);
    atomicAdd(v.dbeta + v.channel(index), term.dz);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Backward, View, Cheat>(p, t, workspace, stream);
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
struct NoDerivative : Honest {
  __device__ float derivative(Activation, float /*z*/, float /*xhat*/) const { return 1.0f; }
};

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
struct DgammaWithoutXhat : Honest {
  template <class T>
  __device__ void store(const View<T>& v, int c, const Sums& sums) const {
    v.dgamma[c] = sums.plain;
    v.dbeta[c] = sums.plain;
  }
};

// Adds into gradients that it leaves to somebody else to clear.
namespace uncleared_atomics {

void launch_atomics(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Dx>(p, t, workspace, stream);
  launch_cheat<Add>(p, t, workspace, stream);
}

}  // namespace uncleared_atomics

// Adds up in whatever order threads arrive: every answer is within the bound, and no two need be the same.
namespace float_atomics {

struct Clear {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    if (index >= v.num_elements()) Honest{}.store(v, static_cast<int>(index - v.num_elements()), {});
  }
};

void launch_atomics(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Dx>(p, t, workspace, stream);
  launch_cheat<Clear>(p, t, workspace, stream);
  launch_cheat<Add>(p, t, workspace, stream);
}

}  // namespace float_atomics

// The block of the highest index adds up what the others have left in the workspace, or will.
namespace last_block_too_early {

constexpr int kBlocks = 4;

std::size_t partial_bytes(const Problem& p) { return p.affine ? std::size_t{kBlocks} * p.c * sizeof(Sums) : 0; }

template <class T>
__global__ void parameters_kernel(View<T> v) {
  auto* const partial = static_cast<Sums*>(v.workspace);  // [kBlocks][c]
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
    Honest{}.store(v, c, total);
  }
}

void launch_early(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  launch_cheat<Dx>(p, t, workspace, stream);
  if (!p.affine) return;
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    launch(parameters_kernel<T>, {.grid = kBlocks, .block = wrong::kThreads}, stream, View<T>(p, t, workspace));
  });
}

}  // namespace last_block_too_early

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
                  {.name = "no_derivative", .launch = launch_cheat<Spoiled<NoDerivative>>},
                  {.name = "derivative_at_xhat", .launch = launch_cheat<Spoiled<DerivativeAtXhat>>},
                  {.name = "no_rstd", .launch = launch_cheat<Spoiled<NoRstd>>},
                  {.name = "bf16_sums", .launch = launch_cheat<Spoiled<Bf16Sums>>},
                  {.name = "last_image", .launch = launch_cheat<Spoiled<LastImage>>},
                  {.name = "dgamma_without_xhat", .launch = launch_cheat<Spoiled<DgammaWithoutXhat>>},
                  {.name = "uncleared_atomics", .launch = uncleared_atomics::launch_atomics},
                  {.name = "float_atomics", .launch = float_atomics::launch_atomics},
                  {.name = "last_block_too_early",
                   .launch = last_block_too_early::launch_early,
                   .workspace_bytes = last_block_too_early::partial_bytes},
              })

}  // namespace ladder::groupnorm
