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
    Shuffle& args = *static_cast<Shuffle*>(operands[lane]);
    if ((mask >> args.source_lane & 1) == 0) fault("shuffle reads a lane that takes no part in it", args.where);
    args.value = values[args.source_lane];
  });
}

void complete_vote(void* const (&operands)[kWarpSize], unsigned mask) {
  unsigned ballot = 0;
  for_each_lane(mask, [&](int lane) {
    if (static_cast<const Vote*>(operands[lane])->predicate) ballot |= 1u << lane;
  });
  for_each_lane(mask, [&](int lane) {
    Vote& args = *static_cast<Vote*>(operands[lane]);
    args.ballot = ballot;
    args.members = mask;
  });
}

void complete_match(void* const (&operands)[kWarpSize], unsigned mask) {
  for_each_lane(mask, [&](int lane) {
    Match& args = *static_cast<Match*>(operands[lane]);
    args.equal = 0;
    args.members = mask;
    for_each_lane(mask, [&](int other) {
      if (static_cast<const Match*>(operands[other])->value == args.value) args.equal |= 1u << other;
    });
  });
}

void complete_reduce(void* const (&operands)[kWarpSize], unsigned mask) {
  const int first = std::countr_zero(mask);
  std::uint32_t all = static_cast<const Reduce*>(operands[first])->value;
  for_each_lane(mask & ~(1u << first), [&](int lane) {
    const Reduce& args = *static_cast<const Reduce*>(operands[lane]);
    all = args.combine(all, args.value);
  });
  for_each_lane(mask, [&](int lane) { static_cast<Reduce*>(operands[lane])->value = all; });
}

}  // namespace ladder::simt::detail

namespace nvcuda::wmma::detail {

void complete_access(void* const (&operands)[ladder::simt::detail::kWarpSize], unsigned mask) {
  const Access& first = *static_cast<const Access*>(operands[std::countr_zero(mask)]);
  ladder::simt::detail::for_each_lane(mask, [&](int lane) {
    const Access& args = *static_cast<const Access*>(operands[lane]);
    if (args.pointer != first.pointer || args.ldm != first.ldm) {
      ladder::simt::detail::fault("wmma: lanes gave different addresses or strides", args.where);
    }
  });
}

}  // namespace nvcuda::wmma::detail
