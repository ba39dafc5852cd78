// Idea:   flipped weights, then fprop v08: mma.sync from ldmatrix over a pipeline of cp.async stages.
// Parent: v05; fprop v08.
// Why:    swizzled tiles without bank conflicts and three stages in flight instead of two. Limiter: fprop v08's, issue
//         of ldmatrix and mma.sync from the same warps; and the flip's launch.
// Needs:  sm_80; a workspace for the flipped weights.

#include "dev/conv3x3/flipped.h"

namespace ladder::conv3x3 {
namespace {

using Rung = Flipped<8>;

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.plans = ladder::conv3x3::Rung::plans,
                                        .plan_names = {"128x128", "128x96", "128x64", "64x64"},
                                        .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::Rung::supports,
                                        .min_arch = 80,
                                        .needs = "a workspace for the flipped weights"})
