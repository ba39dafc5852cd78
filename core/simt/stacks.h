// Stacks for fibers. Each ends in a page that may not be touched: an overflow stops the process instead of writing into
// the neighbour's stack.
#pragma once

#include <cstddef>

namespace ladder::simt {

class Stacks {
 public:
  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  void reserve(int count);  // keeps at least `count`; growing invalidates existing stacks
  int count() const { return count_; }

  unsigned char* bottom(int index) const;
  std::size_t usable_bytes() const;
  // Top of the stack, where fiber `index` begins. Tops are staggered: at equal distances all of them would fall into
  // one cache set.
  unsigned char* top(int index) const;

 private:
  unsigned char* memory_ = nullptr;
  int count_ = 0;
};

}  // namespace ladder::simt
