// Inputs of a case: any element is computed from the seed and its own index alone, so that threads share the work and
// the values do not depend on how.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check/check.h"
#include "core/parallel.h"
#include "core/splitmix64.h"

namespace ladder {
namespace {

std::uint64_t random_word(std::uint64_t key, std::int64_t index) {
  return splitmix64(key + kSplitmixGamma * static_cast<std::uint64_t>(index));
}

// Box and Muller 1958. The radius is at most sqrt(2 ln 2^32) = 6.7, so that N(0, 1) stays far inside every dtype.
double normal(std::uint64_t word) {
  const double u1 = (static_cast<double>(word >> 32) + 1) * 0x1p-32;  // (0, 1]
  const double u2 = static_cast<double>(word & 0xffffffffu) * 0x1p-32;
  return std::sqrt(-2 * std::log(u1)) * std::cos(2 * std::numbers::pi * u2);
}

// One of -largest .. -1, 1 .. largest: a zero would hide a term that a kernel forgets.
double nonzero_integer(std::uint64_t word, int largest) {
  const int value = 1 + static_cast<int>((word >> 32) % static_cast<std::uint64_t>(largest));
  return word & 1 ? value : -value;
}

// Sums of K products of such integers stay within 2^24, up to which fp32 holds every integer. Values beyond 4 would
// only take outputs out of the range where 16-bit formats still tell neighbours apart.
int largest_integer(std::int64_t reduction_length) {
  const double most = std::sqrt(0x1p24 / static_cast<double>(std::max<std::int64_t>(reduction_length, 1)));
  return static_cast<int>(std::clamp(std::floor(most), 1.0, 4.0));
}

double largest_finite(Dtype dtype) { return dtype == Dtype::f16 ? 65504.0 : 3.0e38; }

double subnormal(Dtype dtype) { return dtype == Dtype::f16 ? 0x1p-16 : 0x1p-128; }

// One element in 16 is an outlier, as often between 30 and 300 deviations as between 300 and 3000; one in 64 is zero, one
// subnormal, of either sign.
double with_outliers(const TensorSpec& spec, std::uint64_t word, double largest) {
  const std::uint64_t other = splitmix64_mix(word);
  const double sign = other & 1 ? -1.0 : 1.0;
  const std::uint64_t kind = other >> 1 & 63;
  if (kind < 4) {
    const double exponent = static_cast<double>(other >> 32) * 0x1p-32;
    return sign * spec.stddev * kLeastOutlier * std::pow(largest / kLeastOutlier, exponent);
  }
  if (kind == 4) return sign * 0.0;
  if (kind == 5) return sign * subnormal(spec.dtype);
  return spec.mean + spec.stddev * normal(word);
}

double drawn_value(const TensorSpec& spec, Pattern pattern, std::uint64_t word, int largest_integer,
                   double largest_outlier) {
  if (pattern == Pattern::integer) return nonzero_integer(word, largest_integer);
  if (largest_outlier > 0) return with_outliers(spec, word, largest_outlier);
  return spec.mean + spec.stddev * normal(word);
}

}  // namespace

HostTensors fill(const Case& c, Pattern pattern, std::uint64_t seed, const OutlierRule& outliers) {
  HostTensors tensors(c.tensors);
  const int largest = largest_integer(c.reduction_length());
  std::uint64_t key =
      splitmix64_mix(seed + static_cast<std::uint64_t>(pattern));  // so that integer tensors differ as well
  for (std::size_t t = 0; t < c.tensors.size(); ++t) {
    const TensorSpec& spec = c.tensors[t];
    std::vector<float>& values = tensors.values[t];
    key = splitmix64_mix(key + 1);
    if (!spec.is_read()) continue;
    values.resize(spec.elements());
    if (is_integer(spec.dtype)) {
      const auto count = static_cast<std::uint64_t>(spec.high - spec.low) + 1;
      for (std::int64_t i = 0; i < std::ssize(values); ++i) {
        values[i] = static_cast<float>(spec.low + static_cast<std::int64_t>(random_word(key, i) % count));
      }
      continue;
    }
    const bool tame = pattern != Pattern::outliers || std::ranges::count(outliers.tame, spec.name) > 0;
    const double largest_outlier = tame ? 0 : outliers.largest;
    const double limit = largest_finite(spec.dtype);
    parallel_for(std::ssize(values), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint64_t word = random_word(key, i);
        const double drawn = drawn_value(spec, pattern, word, largest, largest_outlier);
        const auto value = static_cast<float>(std::clamp(drawn, -limit, limit));
        values[i] = round_to(spec.dtype, spec.drawn ? round_to(*spec.drawn, value) : value);
      }
    });
  }
  if (c.pass->derive) c.pass->derive(c, tensors);
  return tensors;
}

}  // namespace ladder
