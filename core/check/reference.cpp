// The references of all passes.
#include <map>
#include <utility>

#include "core/check/check.h"
#include "core/error.h"

namespace ladder {
namespace {

std::map<const Pass*, ReferenceFunction>& references() {
  static std::map<const Pass*, ReferenceFunction> instance;
  return instance;
}

}  // namespace

bool register_reference(const Pass& pass, ReferenceFunction reference) {
  const auto [at, is_first] = references().emplace(&pass, reference);
  if (!is_first) at->second = nullptr;  // whose would it be?
  return is_first;
}

ExpectedOutputs reference_outputs(const Case& c, const HostTensors& inputs) {
  const auto found = references().find(c.pass);
  if (found == references().end()) throw Failure(c.pass->path() + " has no reference");
  if (!found->second) throw Failure(c.pass->path() + " has two references");
  NamedOutputs named = found->second(c, inputs);
  ExpectedOutputs expected;
  for (const TensorSpec* spec : written(c.tensors)) {
    auto at = named.find(spec->name);
    if (at == named.end()) throw Failure(c.pass->path() + ": its reference has no output " + spec->name);
    expected.push_back(std::move(at->second));
    named.erase(at);
  }
  if (!named.empty()) throw Failure(c.pass->path() + ": its reference has an output too many, " + named.begin()->first);
  return expected;
}

ReferenceRun reference_run(const Case& c, Pattern pattern, std::uint64_t seed) {
  ReferenceRun run{.inputs = fill(c, pattern, seed), .expected = {}};
  run.expected = reference_outputs(c, run.inputs);
  return run;
}

CheckedCase::CheckedCase(Case c, std::uint64_t seed) : case_(std::move(c)), seed_(seed) {}

const ReferenceRun& CheckedCase::run(Pattern pattern) {
  const auto found = runs_.find(pattern);
  if (found != runs_.end()) return found->second;
  return runs_.emplace(pattern, reference_run(case_, pattern, seed_)).first->second;
}

}  // namespace ladder
