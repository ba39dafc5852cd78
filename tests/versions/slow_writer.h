// A kernel that writes what the next one reads as late as it can.
#pragma once

#include <cstddef>
#include <vector>

#include "core/stream.h"

namespace ladder::test {

struct LateCopy {
  unsigned char* to = nullptr;
  const unsigned char* from = nullptr;
  std::size_t bytes = 0;
};

// The next kernel on the stream may start at once; the copies are made 50 us later.
void copy_late(const std::vector<LateCopy>& copies, Stream stream);

}  // namespace ladder::test
