// The reader of safetensors: its header, then every tensor that it says is there.
#include "io/safetensors.h"

#include "core/error.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ladder::fuzz::MemoryFile input(data, size);
  try {
    const ladder::io::SafetensorsFile file(input.path());
    for (const ladder::io::StoredTensor& tensor : file.tensors()) {
      try {
        if (file.bytes(tensor.name).size() > size) std::abort();  // more than the file has
        file.floats(tensor.name);
      } catch (const ladder::Failure&) {  // of a dtype that is not read, or integers
      }
    }
  } catch (const ladder::Failure&) {
  }
  return 0;
}
