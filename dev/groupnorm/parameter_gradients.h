// The end of dgamma and dbeta: a version leaves sums of a channel over some of the pixels, an image's pixels being one row or
// several, and a kernel of its own (parameter_gradients.cu) adds up the rows in a fixed order: the same sums every time, so
// results are equal bit for bit.
#pragma once

#include "core/device.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm {

// Rows [rows][c] of (sum of dz, sum of dz * xhat); nothing to do without affine parameters. `overlaps`: launched while the
// kernel that makes the rows still runs; see LaunchConfig::overlaps_previous.
void launch_parameters(const Problem& p, const float2* sums, int rows, const Backward::Tensors& t, Stream stream,
                       bool overlaps = false);

}  // namespace ladder::groupnorm
