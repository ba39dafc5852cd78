// The reader of data sets, and the order of their images.
#include "core/error.h"
#include "tests/fuzz/memory_file.h"
#include "train/dataset.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ladder::fuzz::MemoryFile input(data, size);
  try {
    const ladder::train::Dataset set(input.path());
    unsigned sum = 0;
    for (std::size_t i = 0; i < set.num_training(); ++i) sum += set.training(i)[set.image_bytes() - 1];
    for (std::size_t i = 0; i < set.num_held_out(); ++i) sum += set.held_out(i)[set.image_bytes() - 1];
    ladder::train::Order order(sum, set.num_training(), true);
    if (order.image(sum) >= set.num_training()) std::abort();
    set.check_digest();
  } catch (const ladder::Failure&) {
  }
  return 0;
}
