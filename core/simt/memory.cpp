#include "core/simt/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "core/simt/pages.h"
#include "core/simt/sanitizer.h"

namespace ladder::simt {

namespace {

constexpr std::size_t kAlignment = 256;
// Inaccessible bytes before and after a buffer. They take only address space, of which AddressSanitizer leaves less.
constexpr std::size_t kGap = sanitizer::kHandlesSignals ? 8u << 20 : 1u << 30;

struct Range {
  std::size_t bytes = 0;
  std::string name;
};

struct Buffer {
  std::size_t bytes = 0;
  bool read_only = false;
};

struct Registry {
  std::mutex mutex;
  std::map<std::uintptr_t, Buffer> buffers;  // by address
  std::map<std::uintptr_t, Range> names;
};

Registry& registry() {
  static Registry& all = *new Registry;  // never destroyed: buffers may be released after main()
  return all;
}

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

std::size_t pages_of(std::size_t bytes) { return align_up(align_up(bytes, kAlignment), kPage); }

void set_access(std::uintptr_t begin, std::size_t bytes, int access) {
  const std::size_t pages = pages_of(bytes);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* const first = reinterpret_cast<void*>(begin + align_up(bytes, kAlignment) - pages);
  LADDER_CHECK(mprotect(first, pages, access) == 0);
}

// Returns the buffer of `address` with its begin, or null. The registry must be locked.
std::pair<const std::uintptr_t, Buffer>* buffer_of(const void* address) {
  auto& buffers = registry().buffers;
  const auto next = buffers.upper_bound(number(address));
  if (next == buffers.begin()) return nullptr;
  auto& found = *std::prev(next);
  return number(address) - found.first < found.second.bytes ? &found : nullptr;
}

// Distance in bytes of `address` from [begin, begin + bytes); 0 within.
std::uintptr_t distance(std::uintptr_t address, std::uintptr_t begin, std::size_t bytes) {
  if (address < begin) return begin - address;
  return address - begin < bytes ? 0 : address - begin - bytes + 1;
}

std::string describe(std::uintptr_t address, std::uintptr_t begin, std::size_t bytes, const std::string& name) {
  return address < begin ? fmt::format("{} - {} bytes", name, begin - address)
                         : fmt::format("{} + {} bytes ({} has {})", name, address - begin, name, bytes);
}

}  // namespace

void* allocate_memory(std::size_t bytes) {
  bytes = bytes == 0 ? 1 : bytes;
  const std::size_t pages = pages_of(bytes);
  void* gap = mmap(nullptr, pages + 2 * kGap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  auto* const first = static_cast<unsigned char*>(gap) + kGap;
  if (gap == MAP_FAILED || mprotect(first, pages, PROT_READ | PROT_WRITE) != 0) {
    if (gap != MAP_FAILED) munmap(gap, pages + 2 * kGap);
    throw Failure(fmt::format("no memory for a buffer of {} bytes", bytes));
  }
  unsigned char* const buffer = first + pages - align_up(bytes, kAlignment);
  sanitizer::poison(first, pages);
  sanitizer::unpoison(buffer, bytes);
  const std::lock_guard lock(registry().mutex);
  registry().buffers[number(buffer)] = {.bytes = bytes};
  return buffer;
}

void release_memory(void* pointer) noexcept {
  if (pointer == nullptr) return;
  const std::lock_guard lock(registry().mutex);
  auto& [mutex, buffers, names] = registry();
  const auto found = buffers.find(number(pointer));
  if (found == buffers.end()) return;
  const std::size_t bytes = found->second.bytes;
  names.erase(names.lower_bound(found->first), names.lower_bound(found->first + bytes));
  buffers.erase(found);
  const std::size_t pages = pages_of(bytes);
  unsigned char* const first = static_cast<unsigned char*>(pointer) + align_up(bytes, kAlignment) - pages;
  sanitizer::unpoison(first, pages);
  munmap(first - kGap, pages + 2 * kGap);
}

bool in_memory(const void* address) {
  const std::lock_guard lock(registry().mutex);
  return buffer_of(address) != nullptr;
}

std::pair<const void*, std::size_t> buffer_at(const void* address) {
  const std::lock_guard lock(registry().mutex);
  const auto* const found = buffer_of(address);
  if (found == nullptr) return {};
  return {reinterpret_cast<const void*>(found->first), found->second.bytes};  // NOLINT(performance-no-int-to-ptr)
}

void set_read_only(const void* address, bool read_only) {
  const std::lock_guard lock(registry().mutex);
  auto* const found = buffer_of(address);
  LADDER_CHECK(found);
  found->second.read_only = read_only;
  set_access(found->first, found->second.bytes, read_only ? PROT_READ : PROT_READ | PROT_WRITE);
}

bool is_read_only(const void* address) {
  const std::lock_guard lock(registry().mutex);
  const auto* const found = buffer_of(address);
  return found && found->second.read_only;
}

void protect_memory(bool closed) {
  const std::lock_guard lock(registry().mutex);
  for (const auto& [begin, buffer] : registry().buffers) {
    const int open = buffer.read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    set_access(begin, buffer.bytes, closed ? PROT_NONE : open);
  }
}

void name_memory(const void* begin, std::size_t bytes, const std::string& name) {
  const std::lock_guard lock(registry().mutex);
  registry().names[number(begin)] = {bytes, name};
}

std::string describe_memory(const void* pointer) {
  const std::uintptr_t address = number(pointer);
  if (address < kPage) return address == 0 ? "a null pointer" : fmt::format("a null pointer + {} bytes", address);
  const std::lock_guard lock(registry().mutex);
  std::uintptr_t nearest = UINTPTR_MAX;
  std::string text = fmt::format("address {}, with no buffer near it", pointer);
  const auto consider = [&](std::uintptr_t begin, std::size_t bytes, const std::string& name) {
    if (distance(address, begin, bytes) >= nearest) return;
    nearest = distance(address, begin, bytes);
    text = describe(address, begin, bytes, name);
  };
  for (const auto& [begin, range] : registry().names) consider(begin, range.bytes, range.name);
  for (const auto& [begin, buffer] : registry().buffers) {
    const std::size_t bytes = buffer.bytes;
    // Skip a buffer with named parts: their names tell more.
    const auto name = registry().names.lower_bound(begin);
    if (name == registry().names.end() || name->first >= begin + bytes) consider(begin, bytes, "a buffer");
  }
  return text;
}

}  // namespace ladder::simt
