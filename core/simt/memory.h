// The emulator's device memory. A buffer ends where pages begin that nothing may touch, and buffers lie far apart, so that
// an access past an end is noticed and can be told of by name.
#pragma once

#include <cstddef>
#include <string>

namespace ladder::simt {

// 256-byte aligned; `bytes` rounded up to a multiple of 256 end at an inaccessible page. Throws Failure where there is no
// memory left.
void* allocate_memory(std::size_t bytes);
void release_memory(void* pointer) noexcept;

// [begin, begin + bytes), within a buffer, is called `name` in reports until the buffer is released.
void name_memory(const void* begin, std::size_t bytes, const std::string& name);

// True if `address` lies in a buffer.
bool in_memory(const void* address);

// Whether a kernel's write to the buffer in which `address` lies is a fault, until the next call or its release.
void set_read_only(const void* address, bool read_only);
bool is_read_only(const void* address);

// Closes the pages of all buffers to the process, or opens them again.
void protect_memory(bool closed);

// "y + 4000000 bytes (y has 4096)": by the nearest buffer, named or not.
std::string describe_memory(const void* address);

}  // namespace ladder::simt
