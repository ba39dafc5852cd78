// The shared memory of one block: dynamic, and static variables as the kernel comes upon them. Everything is 0xFF bytes
// (NaN in every floating-point format) when a block begins, what lies around the parts included. After each part comes a
// page that nothing may touch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/simt/pages.h"

namespace ladder::simt {

class SharedMemory {
 public:
  static constexpr std::size_t kMaxBytes = 227 * 1024;       // a block's, on compute capability 9.0
  static constexpr std::size_t kMaxStaticBytes = 48 * 1024;  // nvcc refuses more

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Static variables end where their pages do, or are aligned as declared and deliberately no better, so that a kernel that
  // needs more is found out. Every kernel should meet both.
  enum class Placement : bool { at_page_end, barely_aligned };
  // `launch` is another number for each launch: what one kernel may touch, the next one may not.
  void begin_block(std::uint64_t launch, std::size_t dynamic_bytes, Placement placement);

  unsigned char* dynamic() const;  // 1024-byte aligned
  // The variable that `key` stands for; null if there is none.
  void* find(const char* const* key) const;
  // Makes it, called *key, if there is room.
  void add(const char* const* key, std::size_t bytes, std::size_t alignment);
  // Where this has what `other` has at `address`.
  void* same_place(const void* address, const SharedMemory& other) const;
  bool owns(const void* address) const;  // what lies around the parts included
  bool contains(const void* address, std::size_t bytes) const;

  // Empty, or where a write fell beside a part and met no closed page. AddressSanitizer reports the write itself.
  std::string damage() const;
  // "shared array tile + 512 bytes (tile has 512)", by the part nearest to `address`, which this owns.
  std::string describe(const void* address) const;

 private:
  struct Part {
    const char* const* name = nullptr;  // a variable's key
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  static constexpr int kMaxVariables = 64;
  // Beside its bytes a variable may take a page for its alignment and one that it does not fill; a closed one follows.
  static constexpr std::size_t kStaticPages = 1 + kMaxStaticBytes / kPage + 3 * kMaxVariables;
  static constexpr std::size_t kDynamicBegin = (kStaticPages + 1) * kPage;
  static constexpr std::size_t kDynamicEnd = kDynamicBegin + 256 * 1024;
  static constexpr std::size_t kBytes = kDynamicEnd + kPage;

  Part dynamic_part() const;
  std::string damage(const Part& part, std::size_t begin, std::size_t end) const;
  void clear(std::size_t begin, std::size_t end);
  void close(std::size_t page, bool closed);

  unsigned char* memory_;
  std::uint64_t launch_ = 0;
  std::array<bool, kStaticPages> closed_;
  Placement placement_ = Placement::at_page_end;
  std::size_t dynamic_bytes_ = 0;
  std::size_t static_bytes_ = 0;  // sum of the variables' sizes
  std::size_t next_page_ = 1;     // for a static variable
  Part variables_[kMaxVariables];
  int num_variables_ = 0;
};

}  // namespace ladder::simt
