// The block of the highest index adds up what the others have left in the workspace, or will.
#include "tests/wrong/groupnorm/backward/backward.h"

namespace ladder::groupnorm::backward_wrong {
namespace {

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

}  // namespace

LADDER_VERSION(Backward, {.launch = launch_early, .dtypes = stored_dtypes(), .workspace_bytes = partial_bytes})

}  // namespace ladder::groupnorm::backward_wrong
