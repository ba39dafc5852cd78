// One piece of device memory for all values that a program holds only for a while, planned once: values whose lifetimes
// do not overlap may share addresses.
#pragma once

#include <cstddef>
#include <vector>

namespace ladder {

// Needed from the beginning of operation `first` to the end of operation `last`.
struct Lifetime {
  int first = 0;
  int last = 0;
  std::size_t bytes = 0;
};

struct ArenaPlan {
  std::vector<std::size_t> offsets;  // bytes, of each lifetime in order; multiples of 256
  std::size_t bytes = 0;             // of the whole arena
};

// Largest first, each at the lowest address where it fits: no two whose lifetimes overlap share a byte.
ArenaPlan plan_arena(const std::vector<Lifetime>& lifetimes);

}  // namespace ladder
