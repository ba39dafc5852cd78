// The shared memory of one block: dynamic, and static variables as the kernel comes upon them. Everything is 0xFF bytes
// (NaN in every floating-point format) when a block begins, red zones around the parts included.
#pragma once

#include <cstddef>
#include <string>

namespace ladder::simt {

class SharedMemory {
 public:
  static constexpr std::size_t kMaxBytes = 227 * 1024;       // a block's, on compute capability 9.0
  static constexpr std::size_t kMaxStaticBytes = 48 * 1024;  // nvcc refuses more

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void begin_block(std::size_t dynamic_bytes);

  unsigned char* dynamic() const;  // 1024-byte aligned
  // The variable that `key` stands for; null if there is none.
  void* find(const void* key) const;
  // Makes it, if there is room. Aligned to `alignment` and deliberately not to more, so that a kernel that needs more than
  // it declared is found out.
  void add(const void* key, std::size_t bytes, std::size_t alignment);
  // Where this has what `other` has at `address`.
  void* same_place(const void* address, const SharedMemory& other) const;
  bool owns(const void* address) const;  // red zones included
  bool contains(const void* address, std::size_t bytes) const;

  // Empty, or where a write fell into a red zone. AddressSanitizer reports the write itself instead.
  std::string damage() const;

 private:
  struct Variable {
    const void* key;
    std::size_t begin;
    std::size_t end;
  };
  static constexpr int kMaxVariables = 64;

  std::string damage(std::size_t begin, std::size_t end, const char* place) const;

  unsigned char* memory_;
  std::size_t dynamic_bytes_ = 0;
  std::size_t static_bytes_ = 0;  // sum of the variables' sizes
  std::size_t static_end_;        // of the last variable
  Variable variables_[kMaxVariables];
  int num_variables_ = 0;
};

}  // namespace ladder::simt
