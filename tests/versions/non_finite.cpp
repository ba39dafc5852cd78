#include "tests/versions/non_finite.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/backend.h"
#include "core/check/check.h"

namespace ladder::test {

namespace {

// The outputs of the reference with `value` in the middle of one tensor.
ExpectedOutputs outputs_of(const Case& c, HostTensors inputs, std::size_t tensor, float value) {
  std::vector<float>& values = inputs.values[tensor];
  values[values.size() / 2] = value;
  return reference_outputs(c, inputs);
}

// Empty, or the first element of an output that is finite where `expected` is not. One that two finite inputs leave the same
// does not depend on that input: the reference multiplies it by an image's zero padding, and a version need not.
std::string first_hidden(const Case& c, const std::vector<std::vector<float>>& outputs, const ExpectedOutputs& expected,
                         const ExpectedOutputs& zero, const ExpectedOutputs& one) {
  const std::vector<const TensorSpec*> specs = written(c.tensors);
  for (std::size_t tensor = 0; tensor < outputs.size(); ++tensor) {
    for (std::size_t i = 0; i < outputs[tensor].size(); ++i) {
      const bool depends = zero[tensor].value[i] != one[tensor].value[i];
      const double wanted = expected[tensor].value[i];
      if (depends && std::isfinite(outputs[tensor][i]) && !std::isfinite(wanted)) {
        return fmt::format("{}[{}] is {} and must be {}", specs[tensor]->name, i, outputs[tensor][i], wanted);
      }
    }
  }
  return {};
}

}  // namespace

std::string hidden_non_finite(const Version& v, const Case& c, std::uint64_t seed) {
  const HostTensors finite = fill(c, Pattern::normal, seed);
  const Kernel kernel = plan(v, c);
  DeviceTensors tensors(c, finite, kernel.workspace_bytes);
  const BoundLaunch bound = kernel.bind(tensors.pointers(), tensors.workspace());
  for (std::size_t i = 0; i < c.tensors.size(); ++i) {
    const TensorSpec& spec = c.tensors[i];
    if (!spec.is_read() || is_integer(spec.dtype) || spec.elements() == 0) continue;
    const ExpectedOutputs zero = outputs_of(c, finite, i, 0), one = outputs_of(c, finite, i, 1);
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      HostTensors inputs = finite;
      inputs.values[i][spec.elements() / 2] = value;
      tensors.refill(inputs);
      tensors.reset();
      bound(backend::check_stream());
      backend::synchronize();
      const std::string hidden = first_hidden(c, tensors.outputs(), outputs_of(c, finite, i, value), zero, one);
      if (!hidden.empty()) return fmt::format("{} in {}: {}", value, spec.name, hidden);
    }
  }
  return {};
}

}  // namespace ladder::test
