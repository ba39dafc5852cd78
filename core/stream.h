// A stream handle that both backends share: CUDA's own type, without CUDA's headers.
#pragma once

struct CUstream_st;

namespace ladder {

using Stream = CUstream_st*;  // cudaStream_t; the emulator has queues of its own (core/simt/stream.h)

}  // namespace ladder
