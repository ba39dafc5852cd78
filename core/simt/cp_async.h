// The emulated branch of dev/ptx/cp_async.h. The source is read when the copy is issued; the destination is NaN from then
// until the issuing thread waits for the copy's group, when the data lands. A group that is never waited for, or never
// committed, never lands.
#pragma once

#include <cstdint>

#include "core/simt/runtime.h"

namespace ladder::simt {

namespace detail {

// 32-bit accesses to memory of any type. Plain loads and stores, which sanitizers see, unlike an inlined memcpy.
using Word [[gnu::may_alias]] = std::uint32_t;

}  // namespace detail

inline void cp_async(void* shared, const void* global, int bytes, bool valid, Where where) {
  constexpr std::uint32_t kPoison = 0xffffffffu;
  detail::check_aligned(shared, bytes, "cp.async: destination is not aligned to the copy's size", where);
  detail::check_aligned(global, bytes, "cp.async: source is not aligned to the copy's size", where);
  if (!detail::is_shared(shared, bytes))
    detail::fault("cp.async: destination is not in the block's shared memory", where);
  auto* const to = static_cast<detail::Word*>(shared);
  const auto* const from = static_cast<const detail::Word*>(global);
  detail::Copy copy{.destination = shared, .words = {}, .num_words = static_cast<unsigned>(bytes) / 4};
  for (unsigned i = 0; i < copy.num_words; ++i) {
    copy.words[i] = valid ? from[i] : 0;
    to[i] = kPoison;
  }
  detail::begin_copy(copy, where);
}

inline void cp_async_commit() { detail::commit_copies(); }

inline void cp_async_wait(int pending) {
  while (const detail::Copy* copy = detail::land_copy(pending)) {
    auto* const to = static_cast<detail::Word*>(copy->destination);
    for (unsigned i = 0; i < copy->num_words; ++i) to[i] = copy->words[i];
  }
}

}  // namespace ladder::simt
