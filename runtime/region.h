// Device memory that outlives a step: parameters, their gradients, inputs, results.
#pragma once

#include <cstddef>
#include <string>

#include "core/dtype.h"

namespace ladder {

struct Region {
  std::string name;
  void* base = nullptr;
  std::size_t bytes = 0;
};

// Arrays in a region begin at multiples of this; `bytes` up to the next one.
inline constexpr std::size_t kRegionAlignment = 256;
inline std::size_t padded(std::size_t bytes) {
  return (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
}

// A region that owns its memory, which begins as zeros.
class OwnedRegion : public Region {
 public:
  OwnedRegion(std::string name, std::size_t bytes);
  ~OwnedRegion();
  OwnedRegion(const OwnedRegion&) = delete;
  OwnedRegion& operator=(const OwnedRegion&) = delete;
};

}  // namespace ladder
