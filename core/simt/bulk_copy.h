// The emulated branch of dev/ptx/bulk_copy.h. Copies land as those of tma.h do.
#pragma once

#include <cstdint>

#include "core/simt/runtime.h"

namespace ladder::simt {

// Starts the copy of `bytes` from global memory into the block's dynamic shared memory.
void bulk_copy(void* shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier,
               Where where = Where::here());

}  // namespace ladder::simt
