// Idea:   four parameters a thread, five vectors of sixteen bytes in flight together; one thread of a block computes the bias
//         corrections meanwhile.
// Parent: v01.
// Why:    38 bytes a parameter are all there is to it: whole lines, few instructions, 80 bytes a thread on their way. Limiter:
//         memory.
// Needs:  nothing.

#include "dev/common/quads.h"
#include "dev/common/wide.h"
#include "dev/optimizer/update.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::optimizer {
namespace {

constexpr int kThreads = 256;

// The last parameters, which are no whole vector.
template <class T>
__device__ void update_one(const Scalars& scalars, const AdamW::Tensors& t, unsigned i) {
  State state{.p = t.p[i], .m = t.m[i], .v = t.v[i], .ema = t.ema[i]};
  if (scalars.scale > 0.0f) state = updated(scalars, state, t.g[i]);
  t.p[i] = state.p;
  t.m[i] = state.m;
  t.v[i] = state.v;
  t.ema[i] = state.ema;
  if constexpr (sizeof(T) == 2) static_cast<T*>(t.w)[i] = from_float<T>(state.p);
}

template <class T>
__global__ void __launch_bounds__(kThreads) optimizer_adamw_v02_kernel(unsigned count, AdamW::Tensors t) {
  LADDER_SHARED(Scalars, shared, [1]);
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const bool full_quad = index < count / 4;
  ptx::grid_dependency_wait();
  float g[4], p[4], m[4], v[4], ema[4];
  if (full_quad) {
    to_floats<float, 4>(load_wide<4>(t.g, index), g);
    to_floats<float, 4>(load_wide<4>(t.p, index), p);
    to_floats<float, 4>(load_wide<4>(t.m, index), m);
    to_floats<float, 4>(load_wide<4>(t.v, index), v);
    to_floats<float, 4>(load_wide<4>(t.ema, index), ema);
  }
  if (threadIdx.x == 0) shared[0] = scalars_of(*t.hyper, *t.scale);
  ptx::grid_dependency_launch();
  __syncthreads();
  const Scalars scalars = shared[0];

  if (!full_quad) {
    for (unsigned i = 4 * index; i < count && i < 4 * index + 4; ++i) update_one<T>(scalars, t, i);
    return;
  }
  if (scalars.scale > 0.0f) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const State state = updated(scalars, {.p = p[i], .m = m[i], .v = v[i], .ema = ema[i]}, g[i]);
      p[i] = state.p;
      m[i] = state.m;
      v[i] = state.v;
      ema[i] = state.ema;
    }
    store_wide<4>(t.p, index, from_floats<float, 4>(p));
    store_wide<4>(t.m, index, from_floats<float, 4>(m));
    store_wide<4>(t.v, index, from_floats<float, 4>(v));
    store_wide<4>(t.ema, index, from_floats<float, 4>(ema));
  }
  if constexpr (sizeof(T) == 2) static_cast<Quad<T>*>(t.w)[index] = pack_quad<T>(p);
}

const char* supports(const Problem& p) { return p.mixed > 0 ? "gradients in d" : nullptr; }

void launch(const Problem& p, const AdamW::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(optimizer_adamw_v02_kernel<decltype(element)>,
                   {.grid = stream_blocks((p.p + 3) / 4, kThreads, 1), .block = kThreads, .overlaps_previous = true},
                   stream, p.p, t);
  });
}

}  // namespace
}  // namespace ladder::optimizer

LADDER_VERSION(ladder::optimizer::AdamW, {.launch = ladder::optimizer::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                          .supports = ladder::optimizer::supports})
