#include "nn/update.h"

namespace ladder::nn {

optimizer::Problem update_problem(const Parameters& parameters, const State& state, Dtype dtype, bool clip) {
  return {.p = parameters.size(),
          .tensors = 1,
          .clip = clip,
          .mixed = dtype == Dtype::f32 ? 0 : parameters.matrices_end(),
          .dtype = state.stored};
}

namespace {

struct GradientValues {
  ValueId d = kNoValue, g = kNoValue;
};

GradientValues values_of(Tape& tape, const Parameters& parameters, const Gradients& gradients, std::int64_t mixed) {
  GradientValues values;
  if (mixed > 0) values.d = tape.value("gradients of matrices", gradients.dtype, {mixed}, *gradients.region);
  values.g = tape.value("gradients", Dtype::f32, {parameters.size() - mixed}, *gradients.region,
                        parameters.gradient_offset(mixed, gradients.dtype));
  return values;
}

}  // namespace

void append_norm(Tape& tape, const Parameters& parameters, const State& state, const Gradients& gradients,
                 const UpdateValues& values, bool clip) {
  const optimizer::Problem problem = update_problem(parameters, state, gradients.dtype, clip);
  const auto [d, g] = values_of(tape, parameters, gradients, problem.mixed);
  tape.run<optimizer::Norm>(
      "norm", problem, {{"d", d}, {"g", g}, {"hyper", values.hyper}, {"norm", values.norm}, {"scale", values.scale}});
}

void append_update(Tape& tape, const Parameters& parameters, const State& state, const Gradients& gradients,
                   const UpdateValues& values, bool clip) {
  const optimizer::Problem problem = update_problem(parameters, state, gradients.dtype, clip);
  const auto flat = [&](const char* name, const Region& region) {
    return tape.value(name, Dtype::f32, {parameters.size()}, region);
  };
  const auto [d, g] = values_of(tape, parameters, gradients, problem.mixed);
  const ValueId w = state.copies ? tape.value("copies", state.stored, {parameters.size()}, *state.copies) : kNoValue;
  tape.run<optimizer::AdamW>("update", problem,
                             {{"d", d},
                              {"g", g},
                              {"scale", values.scale},
                              {"hyper", values.hyper},
                              {"p", flat("values", state.values)},
                              {"m", flat("first moments", state.first_moments)},
                              {"v", flat("second moments", state.second_moments)},
                              {"ema", flat("average", state.average)},
                              {"w", w}});
}

void append_accumulation(Tape& tape, const Parameters& parameters, const std::vector<GradientRange>& ranges,
                         const Region& from, Dtype dtype, const Region& gradients, int parts, bool first) {
  for (const auto& [begin, end] : ranges) {
    const bool matrices = end <= parameters.matrices_end();
    const std::string name = matrices ? "matrices" : "others";
    const Dtype written = matrices ? dtype : Dtype::f32;
    const std::int64_t count = end - begin;
    const ValueId d =
        tape.value("d " + name + " of a part", written, {count}, from, parameters.gradient_offset(begin, dtype));
    const ValueId g = tape.value("d " + name, Dtype::f32, {count}, gradients, begin * sizeof(float));
    tape.run<optimizer::Accumulate>(name, {.p = count, .tensors = 1, .parts = parts, .first = first, .dtype = written},
                                    {{"d", d}, {"g", g}});
  }
}

}  // namespace ladder::nn
