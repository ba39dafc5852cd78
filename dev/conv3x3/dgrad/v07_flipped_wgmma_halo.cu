// Idea:   flipped weights, then fprop v09: TMA brings a halo tile of dy once for nine taps, wgmma reads it in place.
// Parent: v06; fprop v09.
// Why:    operands never pass through registers, and L2 is asked for each pixel once instead of nine times. Limiter:
//         fprop v09's; the flip costs a launch, which is why this stands further from fprop v09 the smaller the image
//         is.
// Needs:  sm_90a; k a multiple of 16 bytes; a workspace for the flipped weights.

#include "dev/conv3x3/flipped.h"

namespace ladder::conv3x3 {
namespace {

using Rung = Flipped<9>;

const char* supports(const Problem& p) {
  return Rung::supports(p) ? "k is not a multiple of 16 bytes, which the TMA's strides must be" : nullptr;
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.plans = ladder::conv3x3::Rung::plans,
                                        .plan_names = {"4 patches x 128 channels", "4 patches x 64 channels",
                                                       "2 patches x 96 channels", "1 patch x 64 channels"},
                                        .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "a workspace for the flipped weights, k a multiple of 16 bytes"})
