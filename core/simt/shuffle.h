// Warp shuffles, votes, matches and reductions (CUDA C++ Programming Guide, "Warp Shuffle Functions" and after). They exchange
// registers and order no memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <functional>

#include "core/simt/runtime.h"

namespace ladder::simt::detail {

template <class T>
concept Shuffled = (std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)) || std::same_as<T, __half> ||
                   std::same_as<T, __half2> || std::same_as<T, __nv_bfloat16> || std::same_as<T, __nv_bfloat162>;

struct Shuffle {
  std::uint64_t value;   // in: the lane's own; out: the source lane's
  unsigned source_lane;  // of the warp
  Where where;
};

struct Vote {
  bool predicate;
  unsigned ballot;   // out
  unsigned members;  // out: the lanes that voted
};

struct Match {
  std::uint64_t value;
  unsigned equal;    // out: lanes with the same value
  unsigned members;  // out
};

struct Reduce {
  std::uint32_t value;  // in: the lane's own; out: all lanes'
  std::uint32_t (*combine)(std::uint32_t, std::uint32_t);
};

// Defined without sanitizers in collectives.cpp: they read and write other fibers' stacks.
void complete_shuffle(void* const (&operands)[kWarpSize], unsigned mask);
void complete_vote(void* const (&operands)[kWarpSize], unsigned mask);
void complete_match(void* const (&operands)[kWarpSize], unsigned mask);
void complete_reduce(void* const (&operands)[kWarpSize], unsigned mask);

inline constexpr Collective kShuffle{"__shfl_sync", false, false, complete_shuffle};
inline constexpr Collective kShuffleUp{"__shfl_up_sync", false, false, complete_shuffle};
inline constexpr Collective kShuffleDown{"__shfl_down_sync", false, false, complete_shuffle};
inline constexpr Collective kShuffleXor{"__shfl_xor_sync", false, false, complete_shuffle};
inline constexpr Collective kBallot{"__ballot_sync", false, false, complete_vote};
inline constexpr Collective kAll{"__all_sync", false, false, complete_vote};
inline constexpr Collective kAny{"__any_sync", false, false, complete_vote};
inline constexpr Collective kMatchAny{"__match_any_sync", false, false, complete_match};
inline constexpr Collective kMatchAll{"__match_all_sync", false, false, complete_match};

inline constexpr Collective kReduce{"__reduce_sync", false, false, complete_reduce};

template <class T>
std::uint64_t to_bits(const T& value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const void*>(&value), sizeof(T));
  return bits;
}

template <Shuffled T>
T shuffle(const Collective& collective, unsigned mask, T value, unsigned source_lane, Where where) {
  Shuffle operands{to_bits(value), source_lane, where};
  join(collective, mask, &operands, where);
  std::memcpy(static_cast<void*>(&value), &operands.value, sizeof(T));
  return value;
}

inline Vote vote(const Collective& collective, unsigned mask, int predicate, Where where) {
  Vote operands{predicate != 0, 0, 0};
  join(collective, mask, &operands, where);
  return operands;
}

template <class T>
Match match(const Collective& collective, unsigned mask, T value, Where where) {
  Match operands{to_bits(value), 0, 0};
  join(collective, mask, &operands, where);
  return operands;
}

template <class T>
concept Reduced = std::same_as<T, int> || std::same_as<T, unsigned>;

template <class F, Reduced T>
T reduce(unsigned mask, T value, Where where) {
  const auto combine = [](std::uint32_t a, std::uint32_t b) {
    return static_cast<std::uint32_t>(F()(static_cast<T>(a), static_cast<T>(b)));
  };
  Reduce operands{static_cast<std::uint32_t>(value), combine};
  join(kReduce, mask, &operands, where);
  return static_cast<T>(operands.value);
}

struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

// The width must be a power of two up to 32.
inline void check_width(int width, Where where) {
  if (width < 1 || width > kWarpSize || !std::has_single_bit(static_cast<unsigned>(width))) {
    fault("shuffle width is not a power of two up to 32", where);
  }
}

}  // namespace ladder::simt::detail

// A lane whose source lies outside its segment of `width` lanes keeps its own value.
template <ladder::simt::detail::Shuffled T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              ladder::simt::Where where = ladder::simt::Where::here()) {
  using namespace ladder::simt::detail;
  check_width(width, where);
  const unsigned segment = current->lane & ~(width - 1u);
  return shuffle(kShuffle, mask, value, segment | (static_cast<unsigned>(source) & (width - 1u)), where);
}

template <ladder::simt::detail::Shuffled T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 ladder::simt::Where where = ladder::simt::Where::here()) {
  using namespace ladder::simt::detail;
  check_width(width, where);
  const unsigned lane = current->lane;
  const bool inside = delta <= (lane & (width - 1u));
  return shuffle(kShuffleUp, mask, value, inside ? lane - delta : lane, where);
}

template <ladder::simt::detail::Shuffled T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   ladder::simt::Where where = ladder::simt::Where::here()) {
  using namespace ladder::simt::detail;
  check_width(width, where);
  const unsigned lane = current->lane;
  const bool inside = delta < width - (lane & (width - 1u));
  return shuffle(kShuffleDown, mask, value, inside ? lane + delta : lane, where);
}

// Lanes of earlier segments can be reached, later ones cannot.
template <ladder::simt::detail::Shuffled T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  ladder::simt::Where where = ladder::simt::Where::here()) {
  using namespace ladder::simt::detail;
  check_width(width, where);
  const unsigned lane = current->lane;
  const unsigned source = lane ^ static_cast<unsigned>(lane_mask);
  const unsigned last = lane | (width - 1u);
  return shuffle(kShuffleXor, mask, value, source <= last ? source : lane, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::vote(ladder::simt::detail::kBallot, mask, predicate, where).ballot;
}
inline int __all_sync(unsigned mask, int predicate, ladder::simt::Where where = ladder::simt::Where::here()) {
  const auto vote = ladder::simt::detail::vote(ladder::simt::detail::kAll, mask, predicate, where);
  return vote.ballot == vote.members;
}
inline int __any_sync(unsigned mask, int predicate, ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::vote(ladder::simt::detail::kAny, mask, predicate, where).ballot != 0;
}

template <class T>
requires(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)) unsigned __match_any_sync(
    unsigned mask, T value, ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::match(ladder::simt::detail::kMatchAny, mask, value, where).equal;
}
// The mask if all its lanes hold the same value, else 0; `*same` says which.
template <class T>
requires(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)) unsigned __match_all_sync(
    unsigned mask, T value, int* same, ladder::simt::Where where = ladder::simt::Where::here()) {
  const auto match = ladder::simt::detail::match(ladder::simt::detail::kMatchAll, mask, value, where);
  *same = match.equal == match.members;
  return *same ? match.members : 0;
}

template <ladder::simt::detail::Reduced T>
T __reduce_min_sync(unsigned mask, T value, ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::reduce<ladder::simt::detail::Minimum>(mask, value, where);
}
template <ladder::simt::detail::Reduced T>
T __reduce_max_sync(unsigned mask, T value, ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::reduce<ladder::simt::detail::Maximum>(mask, value, where);
}
template <ladder::simt::detail::Reduced T>
T __reduce_add_sync(unsigned mask, T value, ladder::simt::Where where = ladder::simt::Where::here()) {
  const auto sum = ladder::simt::detail::reduce<std::plus<>>(mask, static_cast<unsigned>(value), where);
  return static_cast<T>(sum);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value,
                                  ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::reduce<std::bit_and<>>(mask, value, where);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value,
                                 ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::reduce<std::bit_or<>>(mask, value, where);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value,
                                  ladder::simt::Where where = ladder::simt::Where::here()) {
  return ladder::simt::detail::reduce<std::bit_xor<>>(mask, value, where);
}
