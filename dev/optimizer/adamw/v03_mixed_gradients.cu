// Idea:   gradients in 16 bits are read as the layers left them, a quad of parameters a thread.
// Parent: v02.
// Why:    most of a model's gradients come in 16 bits: 36 bytes a parameter instead of 38, and no pass before that widens
//         them. They are widened exactly, so nothing else changes. Limiter: memory.
// Needs:  a multiple of four of them.

#include "dev/common/quads.h"
#include "dev/common/wide.h"
#include "dev/optimizer/update.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::optimizer {
namespace {

constexpr int kThreads = 256;

// The last parameters, which are no whole quad.
template <class T>
__device__ void update_one(const Scalars& scalars, const AdamW::Tensors& t, unsigned i, float gradient) {
  State state{.p = t.p[i], .m = t.m[i], .v = t.v[i], .ema = t.ema[i]};
  if (scalars.scale > 0.0f) state = updated(scalars, state, gradient);
  t.p[i] = state.p;
  t.m[i] = state.m;
  t.v[i] = state.v;
  t.ema[i] = state.ema;
  if constexpr (sizeof(T) == 2) static_cast<T*>(t.w)[i] = from_float<T>(state.p);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    optimizer_adamw_v03_kernel(unsigned count, unsigned mixed, AdamW::Tensors t) {
  ptx::grid_dependency_wait();
  LADDER_SHARED(Scalars, shared, [1]);
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const bool full_quad = index < count / kQuad;
  float g[kQuad], p[kQuad], m[kQuad], v[kQuad], ema[kQuad];
  if (full_quad) {
    if (index < mixed / kQuad) {
      unpack_quad<T>(static_cast<const Quad<T>*>(t.d)[index], g);
    } else {
      load_quad(t.g + (kQuad * index - mixed), g);
    }
    load_quad(t.p + kQuad * index, p);
    load_quad(t.m + kQuad * index, m);
    load_quad(t.v + kQuad * index, v);
    load_quad(t.ema + kQuad * index, ema);
  }
  if (threadIdx.x == 0) shared[0] = scalars_of(*t.hyper, *t.scale);
  ptx::grid_dependency_launch();
  __syncthreads();
  const Scalars scalars = shared[0];

  if (!full_quad) {
    for (unsigned i = kQuad * index; i < count && i < kQuad * (index + 1); ++i) {
      update_one<T>(scalars, t, i, t.g[i - mixed]);
    }
    return;
  }
  if (scalars.scale > 0.0f) {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const State state = updated(scalars, {.p = p[i], .m = m[i], .v = v[i], .ema = ema[i]}, g[i]);
      p[i] = state.p;
      m[i] = state.m;
      v[i] = state.v;
      ema[i] = state.ema;
    }
    store_wide<kQuad>(t.p, index, from_floats<float, kQuad>(p));
    store_wide<kQuad>(t.m, index, from_floats<float, kQuad>(m));
    store_wide<kQuad>(t.v, index, from_floats<float, kQuad>(v));
    store_wide<kQuad>(t.ema, index, from_floats<float, kQuad>(ema));
  }
  if constexpr (sizeof(T) == 2) static_cast<Quad<T>*>(t.w)[index] = pack_quad<T>(p);
}

const char* supports(const Problem& p) { return p.mixed % kQuad != 0 ? "gradients in d, no whole quads" : nullptr; }

void launch(const Problem& p, const AdamW::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(
        optimizer_adamw_v03_kernel<decltype(element)>,
        {.grid = stream_blocks((p.p + 3) / kQuad, kThreads, 1), .block = kThreads, .overlaps_previous = true}, stream,
        p.p, p.mixed, t);
  });
}

}  // namespace
}  // namespace ladder::optimizer

LADDER_VERSION(ladder::optimizer::AdamW, {.launch = ladder::optimizer::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                          .supports = ladder::optimizer::supports,
                                          .needs = "a multiple of 4 gradients in d"})
