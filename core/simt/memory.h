// The emulator's device memory. A buffer ends at inaccessible pages, and buffers lie far apart, so that an access past
// an end is noticed and reported by the buffer's name.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace ladder::simt {

// Allocate and release a buffer, 256-byte aligned. `bytes` rounded up to a multiple of 256 end at an inaccessible page.
// Throws Failure if no memory is left.
void* allocate_memory(std::size_t bytes);
void release_memory(void* pointer) noexcept;

// Name [begin, begin + bytes), which lies within a buffer, in reports until the buffer is released.
void name_memory(const void* begin, std::size_t bytes, const std::string& name);

// Returns true if `address` lies in a buffer.
bool in_memory(const void* address);

// Returns the begin and size in bytes of the buffer of `address`; null and 0 if it lies in none.
std::pair<const void*, std::size_t> buffer_at(const void* address);

// Make a kernel's write to the buffer of `address` a fault, or allow it, until the next call or the buffer's release.
void set_read_only(const void* address, bool read_only);
bool is_read_only(const void* address);

// Close the pages of all buffers to the process, or open them again.
void protect_memory(bool closed);

// Describe `address` by the nearest buffer, named or not: "y + 4000000 bytes (y has 4096)".
std::string describe_memory(const void* address);

}  // namespace ladder::simt
