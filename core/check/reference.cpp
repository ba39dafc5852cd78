// Registry of the passes' references and outlier rules.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "core/check/check.h"
#include "core/error.h"

namespace ladder {
namespace {

std::map<const Pass*, ReferenceFunction>& references() {
  static std::map<const Pass*, ReferenceFunction> instance;
  return instance;
}

std::map<const Pass*, OutlierRule>& outlier_rules() {
  static std::map<const Pass*, OutlierRule> instance;
  return instance;
}

OutlierRule outlier_rule(const Pass* pass) {
  const auto found = outlier_rules().find(pass);
  return found == outlier_rules().end() ? OutlierRule{} : found->second;
}

bool all_finite(const std::vector<std::vector<float>>& tensors) {
  return std::ranges::all_of(tensors, [](const std::vector<float>& values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
  });
}

// Returns true if every answer is at most half of its dtype's largest number. An infinity that comes from an infinite
// input is allowed.
bool fits(const Case& c, const ReferenceRun& run) {
  const bool finite_inputs = all_finite(run.inputs.values);
  const auto specs = written(c.tensors);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const double most = (specs[i]->dtype == Dtype::f16 ? 65504.0 : 3.0e38) / 2;
    for (const double value : run.expected[i].value) {
      if (std::isnan(value) || (std::abs(value) > most && (finite_inputs || std::isfinite(value)))) return false;
    }
  }
  return true;
}

ReferenceRun outlier_run(const Case& c, std::uint64_t seed, const OutlierRule& rule) {
  ReferenceRun run{.inputs = fill(c, Pattern::outliers, seed, rule), .expected = {}};
  if (rule.add_infinities && rule.largest > 0) rule.add_infinities(c, run.inputs);
  run.expected = reference_outputs(c, run.inputs);
  return run;
}

}  // namespace

bool register_outliers(const Pass& pass, const OutlierRule& rule) {
  return outlier_rules().emplace(&pass, rule).second;
}

bool register_reference(const Pass& pass, ReferenceFunction reference) {
  const auto [entry, is_first] = references().emplace(&pass, reference);
  if (!is_first) entry->second = nullptr;  // ambiguous: reference_outputs() throws
  return is_first;
}

ExpectedOutputs reference_outputs(const Case& c, const HostTensors& inputs) {
  const auto found = references().find(c.pass);
  if (found == references().end()) throw Failure(c.pass->path() + " has no reference");
  if (!found->second) throw Failure(c.pass->path() + " has two references");
  NamedOutputs named = found->second(c, inputs);
  ExpectedOutputs expected;
  for (const TensorSpec* spec : written(c.tensors)) {
    auto entry = named.find(spec->name);
    if (entry == named.end()) throw Failure(c.pass->path() + ": its reference has no output " + spec->name);
    expected.push_back(std::move(entry->second));
    named.erase(entry);
  }
  if (!named.empty()) throw Failure(c.pass->path() + ": its reference has an output too many, " + named.begin()->first);
  return expected;
}

ReferenceRun reference_run(const Case& c, Pattern pattern, std::uint64_t seed) {
  if (pattern == Pattern::outliers) {
    constexpr double kStep = 4;
    OutlierRule rule = outlier_rule(c.pass);
    for (; rule.largest >= kLeastOutlier; rule.largest /= kStep) {
      if (ReferenceRun run = outlier_run(c, seed, rule); fits(c, run)) return run;
    }
    rule.largest = 0;
    return outlier_run(c, seed, rule);
  }
  ReferenceRun run{.inputs = fill(c, pattern, seed), .expected = {}};
  run.expected = reference_outputs(c, run.inputs);
  return run;
}

bool is_small(const Case& c) {
  constexpr double kMostOperations = 0x1p26;
  return c.flops + c.traffic.bytes() <= kMostOperations;
}

CheckedCase::CheckedCase(Case c, std::uint64_t seed) : case_(std::move(c)), seed_(seed) {}

const ReferenceRun& CheckedCase::run(Pattern pattern) {
  const auto found = runs_.find(pattern);
  if (found != runs_.end()) return found->second;
  return runs_.emplace(pattern, reference_run(case_, pattern, seed_)).first->second;
}

}  // namespace ladder
