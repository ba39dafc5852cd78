#include "tests/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "core/check/check.h"
#include "core/shapes.h"
#include "tests/support.h"

namespace ladder::test {
namespace {

constexpr int kLeastOfCi = 3;
constexpr int kDraws = 20'000;
constexpr int kDrawsOfRows = 2'000;
constexpr std::size_t kLeastOfDraws = 10;  // different ones

constexpr std::size_t kVectorBytes = 16;

// A tensor, by the size of its elements.
using Rows = std::pair<std::string, std::size_t>;

// The tensors of whole vectors whose rows are not.
std::set<Rows> rows_without_vectors(const Case& c) {
  std::set<Rows> found;
  for (const TensorSpec& spec : c.tensors) {
    if (spec.dtype != storage_dtype(c.dtype) || spec.shape.empty() || spec.bytes() == 0) continue;
    const std::size_t size = size_of(spec.dtype);
    const auto row = static_cast<std::size_t>(spec.shape.back()) * size;
    if (spec.bytes() % kVectorBytes == 0 && row % kVectorBytes != 0) found.emplace(spec.name, size);
  }
  return found;
}

std::set<Dtype> dtypes_of(const Pass& pass) {
  std::set<Dtype> dtypes;
  for (const Version* v : versions_of(pass)) dtypes.insert(v->def.dtypes.begin(), v->def.dtypes.end());
  return dtypes;
}

bool runs(const Version& v, const Case& problem) {
  return std::ranges::any_of(v.def.dtypes,
                             [&](Dtype dtype) { return v.supports(problem.with_dtype(dtype)) == nullptr; });
}

}  // namespace

std::string too_narrow(const Version& v) {
  const std::vector<NamedCase> ci = named_cases(*v.pass, "ci");
  const auto of_ci = std::ranges::count_if(ci, [&](const NamedCase& named) { return runs(v, named.problem); });
  if (of_ci >= kLeastOfCi) return {};
  std::mt19937_64 random(1);
  std::set<std::string> drawn;  // a small one may come often
  for (int draw = 0; draw < kDraws && drawn.size() < kLeastOfDraws; ++draw) {
    const Case problem = v.pass->random(random());
    if (runs(v, problem)) drawn.insert(problem.text);
  }
  if (of_ci > 0 && drawn.size() >= kLeastOfDraws) return {};
  return fmt::format("{} runs {} problems of ci and {} of {} random ones: {} are the least, or 1 and {}", v.label(),
                     of_ci, drawn.size(), kDraws, kLeastOfCi, kLeastOfDraws);
}

std::string untested_plan(const Version& v) {
  std::set<std::string> tested;
  const auto for_each_case = [&](const std::string& set, const auto& f) {
    for (const NamedCase& named : named_cases(*v.pass, set)) {
      for (const Dtype dtype : v.def.dtypes) {
        const Case c = named.problem.with_dtype(dtype);
        if (v.supports(c) == nullptr) f(c);
      }
    }
  };
  for (const char* set : {"ci", "edge"}) {
    for_each_case(set, [&](const Case& c) {
      for (const Kernel& kernel : plans(v, c)) tested.insert(kernel.name);
    });
  }
  std::string untested;
  for (const ShapeSet& set : shape_sets(v.pass->layer)) {
    for_each_case(set.name, [&](const Case& c) {
      const std::string name = plan(v, c).name;
      if (untested.empty() && !tested.contains(name)) {
        untested = fmt::format("{} runs '{}' by the plan '{}', which it has on no problem of ci and edge", v.label(),
                               c.text, name);
      }
    });
  }
  return untested;
}

std::vector<Case> tested_problems(const Pass& pass) {
  std::vector<Case> cases;
  for (const char* set : {"ci", "edge"}) {
    for (const NamedCase& named : named_cases(pass, set)) {
      for (const Dtype dtype : dtypes_of(pass)) cases.push_back(named.problem.with_dtype(dtype));
    }
  }
  return cases;
}

std::string untested_rows(const Pass& pass, const std::vector<Case>& tested) {
  std::set<Rows> found;
  for (const Case& c : tested) found.merge(rows_without_vectors(c));
  std::map<Rows, std::string> untested;  // with a problem
  std::map<std::string, int> num_draws;  // that have the tensor
  std::mt19937_64 random(1);
  for (int draw = 0; draw < kDrawsOfRows; ++draw) {
    const Case drawn = pass.random(random());
    for (const TensorSpec& spec : drawn.tensors) num_draws[spec.name] += spec.bytes() > 0;
    for (const Dtype dtype : dtypes_of(pass)) {
      const Case c = drawn.with_dtype(dtype);
      for (const Rows& rows : rows_without_vectors(c)) {
        if (!found.contains(rows)) untested.emplace(rows, c.text);
      }
    }
  }
  for (const auto& [rows, problem] : untested) {
    const auto& [tensor, size] = rows;
    if (num_draws[tensor] < kDrawsOfRows) continue;
    return fmt::format(
        "{}: no problem of ci and edge has {} as a multiple of {} bytes, but not its rows, of {}-byte elements; '{}' "
        "does",
        pass.path(), tensor, kVectorBytes, size, problem);
  }
  return {};
}

std::string changed_by_deriving_again(const Pass& pass) {
  if (pass.derive == nullptr) return {};
  for (const NamedCase& named : named_cases(pass, "ci")) {
    for (const Dtype dtype : dtypes_of(pass)) {
      const Case c = named.problem.with_dtype(dtype);
      for (const Pattern pattern : {Pattern::normal, Pattern::integer}) {
        const HostTensors once = fill(c, pattern, seed());
        HostTensors twice = once;
        pass.derive(c, twice);
        for (std::size_t i = 0; i < c.tensors.size(); ++i) {
          if (once.values[i] == twice.values[i]) continue;
          return fmt::format("{} '{}': derive() changes {} when it runs again, of {} inputs", pass.path(), c.text,
                             c.tensors[i].name, pattern == Pattern::normal ? "normal" : "integer");
        }
      }
    }
  }
  return {};
}

}  // namespace ladder::test
