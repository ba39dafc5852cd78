// The reader of NumPy arrays.
#include "io/npy.h"

#include "core/error.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ladder::fuzz::MemoryFile input(data, size);
  try {
    const ladder::io::FloatArray array = ladder::io::read_npy(input.path());
    if (array.values.size() * sizeof(float) > size) std::abort();  // more than the file has
  } catch (const ladder::Failure&) {
  }
  return 0;
}
