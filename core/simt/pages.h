// Pages of memory, which can be made inaccessible one by one.
#pragma once

#include <cstddef>

namespace ladder::simt {

inline constexpr std::size_t kPage = 4096;

constexpr std::size_t align_up(std::size_t n, std::size_t alignment) {
  return (n + alignment - 1) / alignment * alignment;
}

}  // namespace ladder::simt
