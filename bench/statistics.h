// Median of samples, and its confidence interval.
#pragma once

#include <vector>

namespace ladder {

struct MedianInterval {
  double median = 0;
  double low = 0;       // the true median lies between low and high
  double high = 0;      // with at least the coverage asked for
  double coverage = 0;  // probability of that; less than asked for if the samples are too few
};

// Throws Failure if there are no samples.
double median(std::vector<double> samples);

// A distribution-free interval: between the l-th smallest and the l-th largest sample lies the true median with the
// probability that a fair coin thrown n times shows at least l and at most n - l heads (Conover, "Practical
// Nonparametric Statistics", 3.2). The largest such l is taken.
MedianInterval median_interval(std::vector<double> samples, double coverage = 0.95);

}  // namespace ladder
