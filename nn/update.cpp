#include "nn/update.h"

#include "dev/optimizer/optimizer.h"

namespace ladder::nn {

void append_update(Tape& tape, const Parameters& parameters, const State& state, const Region& gradients,
                   const UpdateValues& values, bool clip) {
  const std::int64_t count = parameters.size();
  const optimizer::Problem problem{.p = count, .tensors = 1, .clip = clip, .dtype = state.stored};
  const auto flat = [&](const char* name, const Region& region) {
    return tape.value(name, Dtype::f32, {count}, region);
  };
  const ValueId g = flat("gradients", gradients);
  tape.run<optimizer::Norm>("norm", problem,
                            {{"g", g}, {"hyper", values.hyper}, {"norm", values.norm}, {"scale", values.scale}});
  const ValueId w = state.copies ? tape.value("copies", state.stored, {count}, *state.copies) : kNoValue;
  tape.run<optimizer::AdamW>("update", problem,
                             {{"g", g},
                              {"scale", values.scale},
                              {"hyper", values.hyper},
                              {"p", flat("values", state.values)},
                              {"m", flat("first moments", state.first_moments)},
                              {"v", flat("second moments", state.second_moments)},
                              {"ema", flat("average", state.average)},
                              {"w", w}});
}

void append_accumulation(Tape& tape, const std::string& name, Dtype dtype, const Region& from, const Region& gradients,
                         std::int64_t begin, std::int64_t end, int parts, bool first) {
  const std::int64_t count = end - begin;
  const ValueId d = tape.value("d " + name + " of a micro-batch", dtype, {count}, from, begin * size_of(dtype));
  const ValueId g = tape.value("d " + name, Dtype::f32, {count}, gradients, begin * sizeof(float));
  tape.run<optimizer::Accumulate>(name, {.p = count, .tensors = 1, .parts = parts, .first = first, .dtype = dtype},
                                  {{"d", d}, {"g", g}});
}

}  // namespace ladder::nn
