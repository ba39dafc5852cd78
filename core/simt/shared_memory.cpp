#include "core/simt/shared_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/simt/sanitizer.h"

namespace ladder::simt {

namespace {

// Layout: red zone, static variables with red zones between them, red zone, dynamic part, red zone.
constexpr std::size_t kVariableRedzone = 128;
constexpr std::size_t kRedzone = 1024;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kDynamicBegin = 96 * 1024;
constexpr std::size_t kBytes = kDynamicBegin + 256 * 1024;
constexpr int kPoison = 0xff;

constexpr std::size_t align_up(std::size_t n, std::size_t alignment) {
  return (n + alignment - 1) / alignment * alignment;
}

}  // namespace

SharedMemory::SharedMemory() : static_end_(kRedzone) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LADDER_CHECK(memory != MAP_FAILED, "no memory for a block's shared memory");
  memory_ = static_cast<unsigned char*>(memory);
  std::memset(memory_, kPoison, kDynamicBegin);
}

SharedMemory::~SharedMemory() {
  sanitizer::unpoison(memory_, kBytes);
  munmap(memory_, kBytes);
}

void SharedMemory::begin_block(std::size_t dynamic_bytes) {
  sanitizer::unpoison(memory_, kBytes);
  // In whole pages, what the last block can have touched; then what it or this one has need of.
  const std::size_t static_pages = align_up(static_end_ + kVariableRedzone, kPage);
  unsigned char* const dynamic_pages = memory_ + kDynamicBegin - kPage;
  sanitizer::forget(memory_, static_pages);
  sanitizer::forget(dynamic_pages, kPage + align_up(dynamic_bytes_ + kRedzone, kPage));
  std::memset(memory_, kPoison, static_pages);
  std::memset(dynamic_pages, kPoison, kPage + align_up(std::max(dynamic_bytes, dynamic_bytes_) + kRedzone, kPage));
  sanitizer::poison(memory_, kBytes);
  sanitizer::unpoison(memory_ + kDynamicBegin, dynamic_bytes);
  dynamic_bytes_ = dynamic_bytes;
  static_bytes_ = 0;
  static_end_ = kRedzone;
  num_variables_ = 0;
}

unsigned char* SharedMemory::dynamic() const { return memory_ + kDynamicBegin; }

void* SharedMemory::find(const void* key) const {
  for (int i = 0; i < num_variables_; ++i) {
    if (variables_[i].key == key) return memory_ + variables_[i].begin;
  }
  return nullptr;
}

void SharedMemory::add(const void* key, std::size_t bytes, std::size_t alignment) {
  static_bytes_ += bytes;
  if (num_variables_ == kMaxVariables || static_bytes_ > kMaxStaticBytes ||
      static_bytes_ + dynamic_bytes_ > kMaxBytes) {
    return;
  }
  const std::size_t begin = align_up(static_end_ + kVariableRedzone, 2 * alignment) + alignment;
  if (begin + bytes + kRedzone > kDynamicBegin - kRedzone) return;
  static_end_ = begin + bytes;
  variables_[num_variables_++] = {key, begin, static_end_};
  sanitizer::unpoison(memory_ + begin, bytes);
}

void* SharedMemory::same_place(const void* address, const SharedMemory& other) const {
  return memory_ + (static_cast<const unsigned char*>(address) - other.memory_);
}

bool SharedMemory::owns(const void* address) const {
  const auto* byte = static_cast<const unsigned char*>(address);
  return byte >= memory_ && byte < memory_ + kBytes;
}

bool SharedMemory::contains(const void* address, std::size_t bytes) const {
  const auto* byte = static_cast<const unsigned char*>(address);
  if (!owns(address)) return false;
  const std::size_t begin = byte - memory_;
  if (begin >= kDynamicBegin) return begin + bytes <= kDynamicBegin + dynamic_bytes_;
  for (int i = 0; i < num_variables_; ++i) {
    if (begin >= variables_[i].begin && begin + bytes <= variables_[i].end) return true;
  }
  return false;
}

std::string SharedMemory::damage(std::size_t begin, std::size_t end, const char* place) const {
  for (std::size_t i = begin; i < end; ++i) {
    if (memory_[i] != kPoison) return fmt::format("a write {} bytes {}", i - begin, place);
  }
  return {};
}

std::string SharedMemory::damage() const {
#if defined(LADDER_ASAN)
  return {};
#endif
  const std::size_t dynamic_end = kDynamicBegin + dynamic_bytes_;
  std::string found = damage(dynamic_end, dynamic_end + kRedzone, "past the end of dynamic shared memory");
  if (found.empty()) {
    found = damage(kDynamicBegin - kRedzone, kDynamicBegin, "into the 1024 before dynamic shared memory");
  }
  for (int i = 0; i < num_variables_ && found.empty(); ++i) {
    const std::size_t end = variables_[i].end;
    const std::size_t next = i + 1 < num_variables_ ? variables_[i + 1].begin : end + kVariableRedzone;
    found = damage(end, next, "past the end of a static shared variable");
  }
  return found;
}

}  // namespace ladder::simt
