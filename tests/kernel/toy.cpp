#include "tests/kernel/toy.h"

#include "core/check/check.h"
#include "core/problem_line.h"

namespace ladder::toy {

std::string Problem::str() const { return "n" + std::to_string(n) + ' ' + name(dtype); }

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "n8 [fp32]");
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, 1 << 20));
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  return p;
}

Problem Problem::random(std::uint64_t seed) { return {.n = static_cast<int>(1 + seed % 100)}; }

std::vector<TensorSpec> Step::tensors(const Problem& p) {
  const auto vector = [&](const char* name, Role role, Dtype dtype) {
    return TensorSpec{.name = name, .role = role, .dtype = dtype, .shape = {p.n}, .layout = "n"};
  };
  TensorSpec label = vector("label", Role::input, Dtype::i32);
  label.low = -3, label.high = 1000;
  TensorSpec y = vector("y", Role::output, Dtype::f32);
  y.reduction_length = 2;
  return {vector("w", Role::inout, Dtype::f32), vector("g", Role::input, Dtype::f32), label, y};
}

Step::Tensors Step::bind(const Pointers& at) {
  return {.w = at.get<float>("w"),
          .g = at.get<const float>("g"),
          .label = at.get<const int>("label"),
          .y = at.get<float>("y")};
}

namespace {

NamedOutputs reference(const Case&, const HostTensors& in) {
  NamedOutputs out;
  for (std::size_t i = 0; i < in["w"].size(); ++i) {
    const double w = in["w"][i];
    const double g = in["g"][i];
    const double label = in["label"][i];
    out["y"].value.push_back(w + label);
    out["y"].magnitude.push_back(std::abs(w) + std::abs(label));
    out["w"].value.push_back(w - 0.5 * g);
    out["w"].magnitude.push_back(std::abs(w) + 0.5 * std::abs(g));
  }
  return out;
}

}  // namespace
}  // namespace ladder::toy

LADDER_REFERENCE(ladder::toy::Step, ladder::toy::reference)
