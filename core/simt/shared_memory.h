// Shared memory of one block: the dynamic part, and static variables, added when the kernel first reaches them. All
// bytes, those around the parts included, are 0xFF (NaN in every floating-point format) when a block begins. An
// inaccessible page follows each part.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/simt/pages.h"

namespace ladder::simt {

class SharedMemory {
 public:
  static constexpr std::size_t kMaxBytes = 227 * 1024;       // of a block on compute capability 9.0
  static constexpr std::size_t kMaxStaticBytes = 48 * 1024;  // nvcc refuses more

  // Pages of static variables. Besides its bytes a variable may take one page for its alignment and one that it does
  // not fill; a closed page follows.
  static constexpr int kMaxVariables = 64;
  static constexpr std::size_t kStaticPages = 1 + kMaxStaticBytes / kPage + 3 * kMaxVariables;
  static constexpr std::size_t kDynamicBegin = (kStaticPages + 1) * kPage;
  static constexpr std::size_t kDynamicEnd = kDynamicBegin + 256 * 1024;
  static constexpr std::size_t kBytes = kDynamicEnd + kPage;

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Placement of static variables: at the end of their pages, or aligned as declared and deliberately no better, which
  // exposes a kernel that needs more. Every kernel should meet both.
  enum class Placement : bool { at_page_end, barely_aligned };
  // `launch` is unique to a launch: pages that one kernel may touch are closed to the next.
  void begin_block(std::uint64_t launch, std::size_t dynamic_bytes, Placement placement);

  unsigned char* dynamic() const;                         // 1024-byte aligned
  const unsigned char* begin() const { return memory_; }  // of kBytes, parts and what surrounds them
  // Returns the variable that `key` identifies, or null.
  void* find(const char* const* key) const;
  // Add the variable that `key` identifies, named *key, if there is room.
  void add(const char* const* key, std::size_t bytes, std::size_t alignment);
  // Returns the address in this memory that corresponds to `address` in `other`.
  void* same_place(const void* address, const SharedMemory& other) const;
  bool owns(const void* address) const;  // bytes around the parts included
  bool contains(const void* address, std::size_t bytes) const;

  // Returns empty, or the place of a write that fell beside a part and met no closed page. AddressSanitizer reports the
  // write itself.
  std::string damage() const;
  // Describe `address`, which this memory owns, by the nearest part: "shared array tile + 512 bytes (it has 512)".
  std::string describe(const void* address) const;

 private:
  struct Part {
    const char* const* name = nullptr;  // a variable's key
    std::size_t begin = 0;
    std::size_t end = 0;
  };
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
  std::size_t next_page_ = 1;     // for the next static variable
  Part variables_[kMaxVariables];
  int num_variables_ = 0;
};

}  // namespace ladder::simt
