// The emulated branch of dev/ptx/tma.h. A copy's destination is NaN from its issue until it lands: at once on the
// ascending schedule, when no thread can run any more on the descending one, newest first, and at a random moment on the
// seeded ones. The tensor is read when the copy lands.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/dtype.h"
#include "core/simt/runtime.h"

namespace ladder::simt {

// Contents of a CUtensorMap: a dense tensor, innermost dimension first, and the box that one copy fetches.
struct TensorMap {
  static constexpr unsigned kMaxDims = 5;

  const unsigned char* base = nullptr;
  unsigned element_bytes = 0;
  unsigned rank = 0;
  std::uint64_t dims[kMaxDims] = {};
  std::uint32_t box[kMaxDims] = {};
  bool loads_early = false;  // may be loaded before griddepcontrol.wait (core/early_tensors.h)

  std::uint32_t box_bytes() const {
    std::uint32_t bytes = element_bytes;
    for (unsigned i = 0; i < rank; ++i) bytes *= box[i];
    return bytes;
  }
};

// Make a tensor map. Throws Failure, with the reason, for arguments that cuTensorMapEncodeTiled refuses for a dense
// tensor with the 128-byte swizzle.
TensorMap make_tensor_map(Dtype dtype, const void* base, std::initializer_list<std::uint64_t> dims,
                          std::initializer_list<std::uint32_t> box);

// Start the copy of the box at `coordinates`, innermost first, into the block's dynamic shared memory, 128-byte
// aligned.
void tma_load(void* shared, const TensorMap& map, std::uint64_t* barrier, std::initializer_list<int> coordinates,
              Where where = Where::here());

// Start the same copy into the memory of each block of the cluster whose rank is a bit of `blocks`.
void tma_load_multicast(void* shared, const TensorMap& map, std::uint64_t* barrier, unsigned blocks,
                        std::initializer_list<int> coordinates, Where where = Where::here());

}  // namespace ladder::simt
