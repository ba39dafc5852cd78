// 64-bit words of global memory that hold 32 bits of data and a tag: a thread of one block stores a word, threads of others
// read it until the tag is the one that they wait for. A relaxed access of eight bytes is done as one (PTX ISA 8.8, morally
// strong accesses are atomic), so that a word's data comes with its tag: no fence, and no counter.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace ladder::ptx {

using TaggedWord = unsigned long long;  // the tag in the upper half

struct TaggedPair {
  TaggedWord first;
  TaggedWord second;
};

__device__ __forceinline__ TaggedWord tagged(std::uint32_t data, std::uint32_t tag) {
  return static_cast<TaggedWord>(tag) << 32 | data;
}
__device__ __forceinline__ std::uint32_t data_of(TaggedWord word) { return static_cast<std::uint32_t>(word); }
__device__ __forceinline__ bool has_tag(const TaggedPair& pair, std::uint32_t tag) {
  return static_cast<std::uint32_t>(pair.first >> 32) == tag && static_cast<std::uint32_t>(pair.second >> 32) == tag;
}

__device__ __forceinline__ void store_tagged(TaggedWord* to, TaggedWord word) {
#if defined(__CUDACC__)
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
#else
  *static_cast<volatile TaggedWord*>(to) = word;
#endif
}

// Loads two adjacent words, 16-byte aligned. Each is atomic, the pair is not.
__device__ __forceinline__ TaggedPair load_tagged(const TaggedWord* from) {
  TaggedPair pair;
#if defined(__CUDACC__)
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(pair.first), "=l"(pair.second)
               : "l"(from)
               : "memory");
#else
  pair.first = static_cast<const volatile TaggedWord*>(from)[0];
  pair.second = static_cast<const volatile TaggedWord*>(from)[1];
#endif
  return pair;
}

// Between two reads of a word that has not come yet: the emulator runs other threads.
__device__ __forceinline__ void before_next_read() {
#if !defined(__CUDACC__)
  __nanosleep(1);
#endif
}

}  // namespace ladder::ptx
