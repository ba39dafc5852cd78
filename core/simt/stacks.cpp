#include "core/simt/stacks.h"

#include <sys/mman.h>

#include "core/error.h"
#include "core/simt/pages.h"
#include "core/simt/sanitizer.h"

namespace ladder::simt {

namespace {

constexpr std::size_t kStride = kPage + sanitizer::kStackBytes;

}  // namespace

Stacks::~Stacks() {
  if (memory_) munmap(memory_, count_ * kStride);
}

void Stacks::reserve(int count) {
  if (count <= count_) return;
  if (memory_) munmap(memory_, count_ * kStride);
  memory_ = nullptr;
  count_ = 0;
  void* memory =
      mmap(nullptr, count * kStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LADDER_CHECK(memory != MAP_FAILED, "no memory for the emulator's stacks");
  memory_ = static_cast<unsigned char*>(memory);
  count_ = count;
  for (int i = 0; i < count; ++i) LADDER_CHECK(mprotect(memory_ + i * kStride, kPage, PROT_NONE) == 0);
}

unsigned char* Stacks::bottom(int index) const { return memory_ + index * kStride + kPage; }

std::size_t Stacks::usable_bytes() const { return sanitizer::kStackBytes; }

unsigned char* Stacks::top(int index) const {
  constexpr int kLine = 64;
  constexpr int kOffsets = 32;
  return bottom(index) + sanitizer::kStackBytes - (index * 3 % kOffsets) * kLine;
}

}  // namespace ladder::simt
