#include "core/simt/shared_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/simt/sanitizer.h"

namespace ladder::simt {

namespace {

constexpr std::size_t kDynamicAlignment = 1024;
constexpr std::size_t kRedzone = 1024;  // before the dynamic part
constexpr int kPoison = 0xff;
constexpr const char* kDynamicName = "dynamic shared memory";

}  // namespace

// Layout: a closed page, static variables each with a closed page after it, a closed page, the dynamic part with its end
// at a last closed page.
SharedMemory::SharedMemory() {
  void* memory = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LADDER_CHECK(memory != MAP_FAILED, "no memory for a block's shared memory");
  memory_ = static_cast<unsigned char*>(memory);
  LADDER_CHECK(mprotect(memory_ + kDynamicBegin, kDynamicEnd - kDynamicBegin, PROT_READ | PROT_WRITE) == 0);
  closed_.fill(true);
  sanitizer::poison(memory_, kBytes);
}

SharedMemory::~SharedMemory() {
  sanitizer::unpoison(memory_, kBytes);
  munmap(memory_, kBytes);
}

// Whole pages, as if no block had touched them.
void SharedMemory::clear(std::size_t begin, std::size_t end) {
  sanitizer::unpoison(memory_ + begin, end - begin);
  std::memset(memory_ + begin, kPoison, end - begin);
  sanitizer::poison(memory_ + begin, end - begin);
}

void SharedMemory::close(std::size_t page, bool closed) {
  if (closed_[page] == closed) return;
  closed_[page] = closed;
  unsigned char* const begin = memory_ + page * kPage;
  LADDER_CHECK(mprotect(begin, kPage, closed ? PROT_NONE : PROT_READ | PROT_WRITE) == 0);
  if (!closed) clear(page * kPage, (page + 1) * kPage);
}

void SharedMemory::begin_block(std::uint64_t launch, std::size_t dynamic_bytes, Placement placement) {
  placement_ = placement;
  for (int i = 0; i < num_variables_; ++i) {
    clear(variables_[i].begin / kPage * kPage, align_up(variables_[i].end, kPage));
  }
  if (launch != launch_) {
    launch_ = launch;
    LADDER_CHECK(mprotect(memory_, kDynamicBegin, PROT_NONE) == 0);
    closed_.fill(true);
  }
  clear(kDynamicEnd - align_up(std::max(dynamic_bytes, dynamic_bytes_) + kDynamicAlignment + kRedzone, kPage),
        kDynamicEnd);
  dynamic_bytes_ = dynamic_bytes;
  sanitizer::unpoison(dynamic(), dynamic_bytes);
  static_bytes_ = 0;
  next_page_ = 1;
  num_variables_ = 0;
}

SharedMemory::Part SharedMemory::dynamic_part() const {
  const std::size_t begin = kDynamicEnd - align_up(dynamic_bytes_, kDynamicAlignment);
  return {.begin = begin, .end = begin + dynamic_bytes_};
}

unsigned char* SharedMemory::dynamic() const { return memory_ + dynamic_part().begin; }

void* SharedMemory::find(const char* const* key) const {
  for (int i = 0; i < num_variables_; ++i) {
    if (variables_[i].name == key) return memory_ + variables_[i].begin;
  }
  return nullptr;
}

void SharedMemory::add(const char* const* key, std::size_t bytes, std::size_t alignment) {
  static_bytes_ += bytes;
  const std::size_t closed_page = next_page_ + align_up(bytes + 2 * alignment, kPage) / kPage;
  if (num_variables_ == kMaxVariables || static_bytes_ > kMaxStaticBytes ||
      static_bytes_ + dynamic_bytes_ > kMaxBytes || closed_page >= kStaticPages) {
    return;
  }
  for (std::size_t page = next_page_; page < closed_page; ++page) close(page, false);
  close(closed_page, true);
  std::size_t begin = (closed_page * kPage - bytes) / alignment * alignment;
  if (placement_ == Placement::barely_aligned && begin % (2 * alignment) == 0) begin -= alignment;
  variables_[num_variables_++] = {key, begin, begin + bytes};
  next_page_ = closed_page + 1;
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
  if (!owns(address)) return false;
  const std::size_t begin = static_cast<const unsigned char*>(address) - memory_;
  const auto holds = [&](const Part& part) { return begin >= part.begin && begin + bytes <= part.end; };
  return holds(dynamic_part()) || std::any_of(variables_, variables_ + num_variables_, holds);
}

std::string SharedMemory::describe(const void* address) const {
  const std::size_t at = static_cast<const unsigned char*>(address) - memory_;
  Part nearest = dynamic_part();
  const auto distance = [&](const Part& part) {
    return at < part.begin ? part.begin - at : at < part.end ? 0 : at - part.end + 1;
  };
  for (int i = 0; i < num_variables_; ++i) {
    if (dynamic_bytes_ == 0 && i == 0) nearest = variables_[0];
    if (distance(variables_[i]) < distance(nearest)) nearest = variables_[i];
  }
  const std::string name = nearest.name ? fmt::format("shared array {}", *nearest.name) : kDynamicName;
  return at < nearest.begin
             ? fmt::format("{} - {} bytes", name, nearest.begin - at)
             : fmt::format("{} + {} bytes (it has {})", name, at - nearest.begin, nearest.end - nearest.begin);
}

std::string SharedMemory::damage(const Part& part, std::size_t begin, std::size_t end) const {
  const auto* const last = std::find_if(memory_ + part.end, memory_ + end, [](auto byte) { return byte != kPoison; });
  const auto* const first = std::find_if(memory_ + begin, memory_ + part.begin, [](auto b) { return b != kPoison; });
  if (last != memory_ + end) return "a write out of bounds: " + describe(last);
  if (first != memory_ + part.begin) return "a write out of bounds: " + describe(first);
  return {};
}

std::string SharedMemory::damage() const {
#if defined(LADDER_ASAN)
  return {};
#endif
  const Part dynamic = dynamic_part();
  std::string found = damage(dynamic, dynamic.begin - kRedzone, kDynamicEnd);
  for (int i = 0; i < num_variables_ && found.empty(); ++i) {
    const Part& part = variables_[i];
    found = damage(part, part.begin / kPage * kPage, align_up(part.end, kPage));
  }
  return found;
}

}  // namespace ladder::simt
