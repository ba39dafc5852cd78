// The reference of optimizer: the formulas of dev/optimizer/optimizer.h in double precision.
#include <algorithm>
#include <cmath>

#include "core/check/check.h"
#include "dev/optimizer/optimizer.h"

namespace ladder::optimizer {
namespace {

Hyper hyper_of(const HostTensors& in) {
  Hyper h{};
  std::copy(in["hyper"].begin(), in["hyper"].end(), reinterpret_cast<float*>(&h));
  return h;
}

// Gradients of all parameters: `d`, if the case has it, followed by `g`.
std::vector<float> gradients(const HostTensors& in) {
  std::vector<float> all;
  if (const std::vector<float>* d = in.find("d")) all = *d;
  all.insert(all.end(), in["g"].begin(), in["g"].end());
  return all;
}

NamedOutputs accumulate(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Accumulate>(c);
  Expected g{std::vector<double>(p.p), std::vector<double>(p.p)};
  g.discriminating = !p.first || p.parts > 1;  // a copy otherwise
  for (std::int64_t i = 0; i < p.p; ++i) {
    const double before = p.first ? 0.0 : double{in["g"][i]};
    const double added = double{in["d"][i]} / p.parts;
    g.value[i] = before + added;
    g.magnitude[i] = std::abs(before) + std::abs(added);
  }
  NamedOutputs outputs;
  outputs["g"] = std::move(g);
  return outputs;
}

NamedOutputs norm(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Norm>(c);
  double squares = 0;
  for (const float g : gradients(in)) squares += double{g} * g;
  const double norm = std::sqrt(squares);
  double scale = 1;
  if (p.clip) scale = std::min(1.0, hyper_of(in).max_norm / (norm + 1e-6));
  if (!std::isfinite(norm)) scale = 0;
  NamedOutputs outputs;
  outputs["norm"] = {.value = {norm}, .magnitude = {norm}};
  outputs["scale"] = {.value = {scale}, .magnitude = {scale}, .discriminating = p.clip};
  return outputs;
}

NamedOutputs adamw(const Case& c, const HostTensors& in) {
  const auto& problem = problem_of<AdamW>(c);
  const Hyper h = hyper_of(in);
  const double scale = in["scale"][0];
  const std::vector<float> all = gradients(in);
  const double bias1 = 1 - std::pow(1 - double{h.one_minus_beta1}, h.step);
  const double bias2 = 1 - std::pow(1 - double{h.one_minus_beta2}, h.step);
  NamedOutputs outputs;
  for (const char* name : {"p", "m", "v", "ema"}) {
    outputs[name] = {std::vector<double>(problem.p), std::vector<double>(problem.p)};
  }
  const auto set = [&](const char* name, std::int64_t i, double value, double magnitude) {
    outputs.find(name)->second.value[i] = value;
    outputs.find(name)->second.magnitude[i] = magnitude;
  };
  for (std::int64_t i = 0; i < problem.p; ++i) {
    if (!(scale > 0)) {  // no step
      for (const char* name : {"p", "m", "v", "ema"}) set(name, i, in[name][i], std::abs(in[name][i]));
      continue;
    }
    const double g = scale * all[i];
    const double m_before = in["m"][i];
    const double v_before = in["v"][i];
    const double p_before = in["p"][i];
    const double ema_before = in["ema"][i];
    const double m = m_before + h.one_minus_beta1 * (g - m_before);
    const double v = v_before + h.one_minus_beta2 * (g * g - v_before);
    const double per_m = h.lr / bias1 / (std::sqrt(v / bias2) + h.eps);
    const double decayed = (1 - double{h.lr} * h.weight_decay) * p_before;
    const double p = decayed - per_m * m;
    const double ema = ema_before + h.one_minus_ema_rate * (p - ema_before);
    const double m_magnitude = std::abs(m_before) + h.one_minus_beta1 * (std::abs(g) + std::abs(m_before));
    // A dozen operations lie between m and the update, so grant twice one sum's rounding error.
    const double p_magnitude = std::abs(decayed) + 2 * per_m * m_magnitude;
    set("m", i, m, m_magnitude);
    set("v", i, v, v_before + h.one_minus_beta2 * (g * g + v_before));
    set("p", i, p, p_magnitude);
    set("ema", i, ema, std::abs(ema_before) + h.one_minus_ema_rate * (p_magnitude + std::abs(ema_before)));
  }
  if (size_of(problem.dtype) == 2) outputs["w"] = outputs["p"];
  return outputs;
}

}  // namespace
}  // namespace ladder::optimizer

// No outliers in the hyperparameters: an outlier is no valid one (a learning rate below 0, a decay above 1).
LADDER_OUTLIERS(ladder::optimizer::Norm, {.tame = {"hyper"}})
LADDER_OUTLIERS(ladder::optimizer::AdamW, {.tame = {"hyper", "scale"}})
LADDER_REFERENCE(ladder::optimizer::Accumulate, ladder::optimizer::accumulate)
LADDER_REFERENCE(ladder::optimizer::Norm, ladder::optimizer::norm)
LADDER_REFERENCE(ladder::optimizer::AdamW, ladder::optimizer::adamw)
