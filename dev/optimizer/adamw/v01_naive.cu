// Idea:   one thread updates one parameter, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: every thread computes the bias corrections anew, and has five loads of four bytes
//         in flight.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/optimizer/update.h"

namespace ladder::optimizer {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void optimizer_adamw_v01_kernel(unsigned count, unsigned mixed, AdamW::Tensors t) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const Scalars scalars = scalars_of(*t.hyper, *t.scale);
  State state{.p = t.p[i], .m = t.m[i], .v = t.v[i], .ema = t.ema[i]};
  if (scalars.scale > 0.0f) {
    state = updated(scalars, state, gradient_of<T>(i, mixed, t.d, t.g));
    t.p[i] = state.p;
    t.m[i] = state.m;
    t.v[i] = state.v;
    t.ema[i] = state.ema;
  }
  if constexpr (sizeof(T) == 2) static_cast<T*>(t.w)[i] = from_float<T>(state.p);
}

void launch(const Problem& p, const AdamW::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(optimizer_adamw_v01_kernel<decltype(element)>,
                   {.grid = stream_blocks(p.p, kThreads, 1), .block = kThreads}, stream, p.p, p.mixed, t);
  });
}

}  // namespace
}  // namespace ladder::optimizer

LADDER_VERSION(ladder::optimizer::AdamW, {.launch = ladder::optimizer::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})
