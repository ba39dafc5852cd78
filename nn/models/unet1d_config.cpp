#include "nn/models/unet1d_config.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace ladder::nn {
namespace {

constexpr int kMaxTaps = 7;
constexpr int kMaxLevels = 8;

// Returns the common divisors of `dims` as text: "1, 2, 4, 8".
std::string common_divisors(const std::vector<int>& dims) {
  std::vector<int> divisors;
  for (int d = 1; d <= *std::ranges::min_element(dims); ++d) {
    if (std::ranges::all_of(dims, [d](int width) { return width % d == 0; })) divisors.push_back(d);
  }
  return fmt::format("{}", fmt::join(divisors, ", "));
}

void at_least(const char* what, int value, int least) {
  if (value < least) throw UsageError(fmt::format("{}: {} or more, not {}", what, least, value));
}

}  // namespace

void Unet1dConfig::check() const {
  if (dims.empty() || levels() > kMaxLevels) {
    throw UsageError(fmt::format("a policy's network has 1 to {} levels, not {}", kMaxLevels, levels()));
  }
  for (const int width : dims) at_least("channels of a level", width, 1);
  at_least("numbers of an action", action_dim, 1);
  at_least("numbers of an observation", observation, 1);
  at_least("channels of a time step's embedding", step_channels, 4);
  if (step_channels % 2 != 0) {
    throw UsageError(fmt::format("channels of a time step's embedding: an even number, not {}", step_channels));
  }
  if (taps < 1 || taps > kMaxTaps || taps % 2 == 0) {
    throw UsageError(fmt::format("taps of a convolution: 1, 3, 5 or 7, not {}", taps));
  }
  const int divisor = 1 << (levels() - 1);
  if (horizon < divisor || horizon % divisor != 0) {
    throw UsageError(fmt::format("horizon {}: {} levels halve it {} times, so that it is a multiple of {}", horizon,
                                 levels(), levels() - 1, divisor));
  }
  at_least("groups", groups, 1);
  if (std::ranges::any_of(dims, [this](int width) { return width % groups != 0; })) {
    throw UsageError(fmt::format("groups {}: they divide the channels of every level, {}, as {} do", groups,
                                 fmt::join(dims, ", "), common_divisors(dims)));
  }
  if (dims.front() % kLastGroups != 0) {
    throw UsageError(fmt::format("channels of the first level: a multiple of the last block's {} groups, not {}",
                                 kLastGroups, dims.front()));
  }
}

Unet1dConfig tiny_unet1d() { return {.dims = {32, 64, 128}, .step_channels = 32, .observation = 20}; }

}  // namespace ladder::nn
