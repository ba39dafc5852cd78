// Idea:   at most four input channels, an image's three: fragments of a patch of 16 x 32 pixels straight from shared
//         memory, where a pixel is 8 bytes, K a row of the filter at a time; outputs straight from registers.
// Parent: v08.
// Why:    v06 to v08 pad K to chunks of 64 channels a tap, 21 times what there is to multiply, and fetch single elements;
//         here K = 27 is padded to 48. The order of K is free, so that 8 bytes of shared memory are a fragment of pixels,
//         and so is that of the outputs, so that a lane's sums of a pixel are 16 bytes of y, eight lanes write a line, and
//         nothing is staged. Weights stay in registers. Limiter left: writing y.
// Needs:  c <= 4; bf16 or fp16; sm_80. 16-byte stores where k is a multiple of 8, else single elements.

#include "dev/conv3x3/few_channels.h"

namespace ladder::conv3x3 {
namespace {

template <class T, class P>
__global__ void __launch_bounds__(kFewThreads, kFewBlocksPerSm)
    conv3x3_fprop_v11_kernel(Problem p, const T* x, const T* w, const P* bias, T* y) {
  LADDER_SHARED(FewSmem, smem, [1]);
  const FewWeights<T> weights{.first = w, .by_output = 9 * p.c, .by_tap = p.c, .by_input = 1};
  convolve_few_channels<false>(p, x, weights, bias, y, smem[0]);
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      with_parameter_type<T>(p.params16, [&](auto parameter) {
        using P = decltype(parameter);
        ladder::launch(conv3x3_fprop_v11_kernel<T, P>,
                       {.grid = num_few_blocks(p), .block = kFewThreads, .overlaps_previous = true}, stream, p,
                       static_cast<const T*>(t.x), static_cast<const T*>(t.w), typed<P>(t.bias), static_cast<T*>(t.y));
      });
    }
  });
}

const char* supports(const Problem& p) {
  if (const char* const why = bias_only(p)) return why;
  return p.c <= kFewChannels ? nullptr : "more than 4 input channels";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 80,
                                        .needs = "at most 4 input channels"})
