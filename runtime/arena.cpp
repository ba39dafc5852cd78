#include "runtime/arena.h"

#include <algorithm>
#include <numeric>

#include "runtime/region.h"

namespace ladder {
namespace {

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

ArenaPlan plan_arena(const std::vector<Lifetime>& lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });

  ArenaPlan plan;
  plan.offsets.resize(lifetimes.size());
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t i : order) {
    const std::size_t bytes = padded(lifetimes[i].bytes);
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      if (!overlap(lifetimes[i], lifetimes[other])) continue;
      if (offset + bytes <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + padded(lifetimes[other].bytes));
    }
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, [&](std::size_t p) { return plan.offsets[p]; }), i);
  }
  return plan;
}

}  // namespace ladder
