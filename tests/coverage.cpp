#include "tests/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "core/shapes.h"

namespace ladder::test {
namespace {

constexpr int kLeastOfCi = 3;
constexpr int kDraws = 20'000;
constexpr std::size_t kLeastOfDraws = 10;  // different ones

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
  const auto each = [&](const std::string& set, const auto& f) {
    for (const NamedCase& named : named_cases(*v.pass, set)) {
      for (const Dtype dtype : v.def.dtypes) {
        const Case c = named.problem.with_dtype(dtype);
        if (v.supports(c) == nullptr) f(c);
      }
    }
  };
  for (const char* set : {"ci", "edge"}) {
    each(set, [&](const Case& c) {
      for (const Kernel& kernel : plans(v, c)) tested.insert(kernel.name);
    });
  }
  std::string untested;
  for (const ShapeSet& set : shape_sets(v.pass->layer)) {
    each(set.name, [&](const Case& c) {
      const std::string name = plan(v, c).name;
      if (untested.empty() && !tested.contains(name)) {
        untested = fmt::format("{} runs '{}' by the plan '{}', which it has on no problem of ci and edge", v.label(),
                               c.text, name);
      }
    });
  }
  return untested;
}

}  // namespace ladder::test
