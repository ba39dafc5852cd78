// Idea:   flip the taps and exchange the channels of the weights, then convolve dy with them: fprop v05, its implicit
//         GEMM.
// Parent: v02; fprop v05.
// Why:    dgrad is a forward convolution of dy, so the forward ladder's register tiles and double buffering hold for
//         it. The flip moves 9kc elements, at most 5 MB of fp32 beside sums that take a hundred times longer; its
//         price is a launch. Limiter: fprop v05's, FFMA issue.
// Needs:  a workspace for the flipped weights.

#include "dev/conv3x3/flipped.h"

namespace ladder::conv3x3 {
namespace {

using Rung = Flipped<5>;

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.plans = ladder::conv3x3::Rung::plans,
                                        .plan_names = {"flipped"},
                                        .dtypes = {ladder::Dtype::f32},
                                        .supports = ladder::conv3x3::Rung::supports,
                                        .needs = "a workspace for the flipped weights"})
