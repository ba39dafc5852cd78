// Idea:   at most four output channels: fprop v11's kernel on dy, with w read in place, its taps backwards and its channels
//         exchanged.
// Parent: v06; fprop v11.
// Why:    as fprop v11: the reduction is over 27 products, and v05 to v07 pad it to 576. The weights cross shared memory
//         anyway, so that turning them costs an index and no kernel in front. Limiter left: writing dx.
// Needs:  k <= 4; bf16 or fp16; sm_80. 16-byte stores where c is a multiple of 8, else single elements.

#include "dev/conv3x3/few_channels.h"
#include "dev/conv3x3/flipped.h"

namespace ladder::conv3x3 {
namespace {

// `forward` is the forward problem whose input is dy and whose output is dx.
template <class T>
__global__ void __launch_bounds__(kFewThreads, kFewBlocksPerSm)
    conv3x3_dgrad_v09_kernel(Problem forward, const T* dy, const T* w, T* dx) {
  LADDER_SHARED(FewSmem, smem, [1]);
  const int c = forward.k;
  const FewWeights<T> weights{.first = w + 8 * c, .by_output = 1, .by_tap = -c, .by_input = 9 * c};
  convolve_few_channels<true>(forward, dy, weights, static_cast<const float*>(nullptr), dx, smem[0]);
}

void launch(const Problem& p, const Dgrad::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const Problem forward = mirrored(p);
      ladder::launch(conv3x3_dgrad_v09_kernel<T>,
                     {.grid = num_few_blocks(forward), .block = kFewThreads, .overlaps_previous = true}, stream,
                     forward, static_cast<const T*>(t.dy), static_cast<const T*>(t.w), static_cast<T*>(t.dx));
    }
  });
}

const char* supports(const Problem& p) { return p.k <= kFewChannels ? nullptr : "more than 4 output channels"; }

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 80,
                                        .needs = "at most 4 output channels"})
