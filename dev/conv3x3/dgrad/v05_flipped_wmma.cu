// Idea:   flipped weights, then fprop v07: WMMA on tiles that cp.async fetches two at a time.
// Parent: v04; fprop v07.
// Why:    tensor cores multiply many times as fast as FFMA. Limiter: fprop v07's, the way from L2 through shared memory
//         into fragments; and the flip's launch, which now shows at 8x8.
// Needs:  sm_80; a workspace for the flipped weights.

#include "dev/conv3x3/flipped.h"

namespace ladder::conv3x3 {
namespace {

using Rung = Flipped<7>;

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.plans = ladder::conv3x3::Rung::plans,
                                        .plan_names = {"128x64", "128x128"},
                                        .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::Rung::supports,
                                        .min_arch = 80,
                                        .error_growth = 4,  // in tf32, as fprop v07's
                                        .needs = "a workspace for the flipped weights"})
