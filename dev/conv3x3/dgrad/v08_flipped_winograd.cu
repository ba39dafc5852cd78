// Idea:   flipped weights, then fprop v10: Winograd's F(4x4, 3x3).
// Parent: v04; fprop v10.
// Why:    without tensor cores FFMA issue is the limiter, and Winograd needs a quarter of the multiplications.
// Needs:  a workspace for the flipped weights and the transformed slabs; rounding errors several times a plain sum's.

#include "dev/conv3x3/flipped.h"

namespace ladder::conv3x3 {
namespace {

using Rung = Flipped<10>;

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad,
               {.plans = ladder::conv3x3::Rung::plans,
                .plan_names = {"flipped"},
                .dtypes = {ladder::Dtype::f32},
                .supports = ladder::conv3x3::Rung::supports,
                .error_growth = 16,
                .exact = false,
                .least_arithmetic = 0.25,
                .needs = "a workspace for the flipped weights and transformed slabs; Winograd's rounding errors"})
