// The end of dgamma and dbeta: a version leaves sums of a column over some of the rows, and a kernel of its own
// (parameter_gradients.cu) adds these up in a fixed order, so that results are equal bit for bit.
#pragma once

#include "core/device.h"
#include "dev/layernorm/layernorm.h"

namespace ladder::layernorm {

// Rows [rows][n] of (dbeta, dgamma).
void launch_parameter_sums(const Problem& p, const float2* sums, int rows, const Backward::Tensors& t, Stream stream);

}  // namespace ladder::layernorm
