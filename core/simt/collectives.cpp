// Results of shuffles, votes, matches and reductions, computed once all lanes have arrived.
#include <bit>

#include "core/simt/shuffle.h"
#include "core/simt/wmma.h"

namespace ladder::simt::detail {

namespace {

template <class F>
void for_each_lane(unsigned mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
}

}  // namespace

void complete_shuffle(void* const (&operands)[kWarpSize], unsigned mask) {
  std::uint64_t values[kWarpSize];
  for_each_lane(mask, [&](int lane) { values[lane] = static_cast<const Shuffle*>(operands[lane])->value; });
  for_each_lane(mask, [&](int lane) {
    Shuffle& own = *static_cast<Shuffle*>(operands[lane]);
    if ((mask >> own.source_lane & 1) == 0) fault("shuffle reads a lane that takes no part in it", own.where);
    own.value = values[own.source_lane];
  });
}

void complete_vote(void* const (&operands)[kWarpSize], unsigned mask) {
  unsigned ballot = 0;
  for_each_lane(mask, [&](int lane) {
    if (static_cast<const Vote*>(operands[lane])->predicate) ballot |= 1u << lane;
  });
  for_each_lane(mask, [&](int lane) {
    Vote& own = *static_cast<Vote*>(operands[lane]);
    own.ballot = ballot;
    own.members = mask;
  });
}

void complete_match(void* const (&operands)[kWarpSize], unsigned mask) {
  for_each_lane(mask, [&](int lane) {
    Match& own = *static_cast<Match*>(operands[lane]);
    own.equal = 0;
    own.members = mask;
    for_each_lane(mask, [&](int other) {
      if (static_cast<const Match*>(operands[other])->value == own.value) own.equal |= 1u << other;
    });
  });
}

void complete_reduce(void* const (&operands)[kWarpSize], unsigned mask) {
  const int first = std::countr_zero(mask);
  std::uint32_t all = static_cast<const Reduce*>(operands[first])->value;
  for_each_lane(mask & ~(1u << first), [&](int lane) {
    const Reduce& own = *static_cast<const Reduce*>(operands[lane]);
    all = own.combine(all, own.value);
  });
  for_each_lane(mask, [&](int lane) { static_cast<Reduce*>(operands[lane])->value = all; });
}

}  // namespace ladder::simt::detail

namespace nvcuda::wmma::detail {

void complete_access(void* const (&operands)[ladder::simt::detail::kWarpSize], unsigned mask) {
  const Access& first = *static_cast<const Access*>(operands[std::countr_zero(mask)]);
  ladder::simt::detail::for_each_lane(mask, [&](int lane) {
    const Access& own = *static_cast<const Access*>(operands[lane]);
    if (own.pointer != first.pointer || own.ldm != first.ldm) {
      ladder::simt::detail::fault("wmma: lanes gave different addresses or strides", own.where);
    }
  });
}

}  // namespace nvcuda::wmma::detail
