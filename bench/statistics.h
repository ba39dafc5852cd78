// What samples say: the median, and how sure of it one can be.
#pragma once

#include <vector>

namespace ladder {

struct MedianInterval {
  double median = 0;
  double low = 0;       // the median of what the samples were drawn from lies between these two
  double high = 0;      // with the coverage asked for, or a little more
  double coverage = 0;  // the probability itself; less than asked for if the samples are too few
};

// Throws Failure on no samples.
double median(std::vector<double> samples);

// A distribution-free interval: between the l-th smallest and the l-th largest sample lies the true median with the
// probability that a fair coin thrown n times shows at least l and at most n - l heads (Conover, "Practical
// Nonparametric Statistics", 3.2). The largest such l is taken.
MedianInterval median_interval(std::vector<double> samples, double coverage = 0.95);

}  // namespace ladder
