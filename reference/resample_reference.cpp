// The reference of resample: the formulas of dev/resample/resample.h in double precision.
#include <cmath>

#include "core/check/check.h"
#include "dev/resample/resample.h"

namespace ladder::resample {
namespace {

// Calls body(element of the larger image, element of the smaller one) for all of the larger image's.
void for_each_pair(const Problem& p, const auto& body) {
  std::int64_t large = 0;
  for (std::int64_t n = 0; n < p.n; ++n) {
    for (std::int64_t row = 0; row < p.h; ++row) {
      for (std::int64_t column = 0; column < p.w; ++column) {
        const std::int64_t pixel = (n * (p.h / 2) + row / 2) * (p.w / 2) + column / 2;
        for (std::int64_t c = 0; c < p.c; ++c) body(large++, pixel * p.c + c);
      }
    }
  }
}

Expected zeros(std::int64_t count) { return {std::vector<double>(count), std::vector<double>(count)}; }

Expected shrunk(const Problem& p, const std::vector<float>& image, double factor) {
  Expected out = zeros(p.small());
  for_each_pair(p, [&](std::int64_t large, std::int64_t small) {
    out.value[small] += factor * image[large];
    out.magnitude[small] += std::abs(factor * image[large]);
  });
  return out;
}

Expected grown(const Problem& p, const std::vector<float>& image, double factor) {
  Expected out = zeros(p.large());
  for_each_pair(p, [&](std::int64_t large, std::int64_t small) {
    out.value[large] = factor * image[small];
    out.magnitude[large] = std::abs(out.value[large]);
  });
  return out;
}

NamedOutputs pool(const Case& c, const HostTensors& in) { return {{"y", shrunk(problem_of<Pool>(c), in["x"], 0.25)}}; }

NamedOutputs pool_backward(const Case& c, const HostTensors& in) {
  return {{"dx", grown(problem_of<PoolBackward>(c), in["dy"], 0.25)}};
}

NamedOutputs upsample(const Case& c, const HostTensors& in) {
  return {{"y", grown(problem_of<Upsample>(c), in["x"], 1)}};
}

NamedOutputs upsample_backward(const Case& c, const HostTensors& in) {
  return {{"dx", shrunk(problem_of<UpsampleBackward>(c), in["dy"], 1)}};
}

}  // namespace
}  // namespace ladder::resample

LADDER_REFERENCE(ladder::resample::Pool, ladder::resample::pool)
LADDER_REFERENCE(ladder::resample::PoolBackward, ladder::resample::pool_backward)
LADDER_REFERENCE(ladder::resample::Upsample, ladder::resample::upsample)
LADDER_REFERENCE(ladder::resample::UpsampleBackward, ladder::resample::upsample_backward)
