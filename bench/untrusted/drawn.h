// Problems that the judge draws anew for each candidate, so that none knows its problems beforehand.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "core/registry.h"

namespace ladder {

using Supports = std::function<bool(const Case&)>;

// Returns the smallest of `num_draws` random problems that the candidate `supports`. Nothing if it supports none of many.
std::optional<Case> drawn_problem(const Pass& pass, const std::vector<Dtype>& dtypes, int num_draws,
                                  std::mt19937_64& random, const Supports& supports);

// Returns the problem with one of its sizes multiplied by 3 to 6: number `index`, counted over and over through its sizes,
// or the next one that can be multiplied. Nothing if the candidate supports no such problem, or the problem is large enough.
std::optional<Case> enlarged(const Case& c, std::size_t index, std::mt19937_64& random, const Supports& supports);

}  // namespace ladder
