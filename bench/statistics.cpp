#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace ladder {
namespace {

double median_of_sorted(const std::vector<double>& sorted) {
  LADDER_CHECK(!sorted.empty());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// Probability of exactly k heads in n throws; logarithms, as the binomial coefficient overflows from n = 1030 on.
double heads(int n, int k) {
  return std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0) - n * std::log(2.0));
}

}  // namespace

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return median_of_sorted(samples);
}

MedianInterval median_interval(std::vector<double> samples, double coverage) {
  std::sort(samples.begin(), samples.end());
  const int n = static_cast<int>(samples.size());
  MedianInterval interval{.median = median_of_sorted(samples), .low = samples.front(), .high = samples.back()};
  // Widest first: l = 1 leaves out the two cases of no heads and of heads only.
  double inside = 1.0 - 2.0 * heads(n, 0);
  interval.coverage = inside;
  for (int l = 2; 2 * l <= n; ++l) {
    inside -= 2.0 * heads(n, l - 1);
    if (inside < coverage) break;
    interval.low = samples[static_cast<std::size_t>(l - 1)];
    interval.high = samples[static_cast<std::size_t>(n - l)];
    interval.coverage = inside;
  }
  return interval;
}

}  // namespace ladder
