// A kernel whose shared memory is as large as it is told, for a test of binding it twice.
#pragma once

#include <cstddef>

#include "core/kernel.h"

namespace ladder::toy {

// Bound to write the last float of `smem_bytes` of dynamic shared memory, which is 1, to y[0].
BoundLaunch bind_last_of_smem(std::size_t smem_bytes, float* y);

}  // namespace ladder::toy
