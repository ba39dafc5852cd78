#include "bench/cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <utility>

#include "core/check/check.h"
#include "core/error.h"
#include "core/shapes.h"

namespace ladder {
namespace {

// Tensor cores first: the dtype of a run that asks for none is the first of these that a version has.
constexpr Dtype kDefaultOrder[] = {Dtype::bf16, Dtype::f16, Dtype::tf32, Dtype::f32};

bool in(const auto& list, const auto& item) { return std::ranges::find(list, item) != std::ranges::end(list); }

std::vector<Dtype> dtypes_of(const std::string& requested) {
  std::vector<Dtype> dtypes;
  for (const std::string& word : split_at_commas(requested)) {
    const std::optional<Dtype> dtype = parse_dtype(word);
    if (!dtype) throw UsageError(fmt::format("--dtype {}: {}, or all", requested, names_of(kProblemDtypes, ", ")));
    if (!in(dtypes, *dtype)) dtypes.push_back(*dtype);
  }
  return dtypes;
}

// Dtypes that any of the versions has, in the default order.
std::vector<Dtype> dtypes_of(const std::vector<const Version*>& versions) {
  std::vector<Dtype> dtypes;
  for (const Dtype dtype : kDefaultOrder) {
    if (std::ranges::any_of(versions, [&](const Version* v) { return v->has(dtype); })) dtypes.push_back(dtype);
  }
  return dtypes;
}

Case parse_problem(const std::string& line, const Pass& pass) {
  try {
    return pass.parse(line);
  } catch (const UsageError& error) {
    if (line.empty() || line.find(' ') != std::string::npos) throw;
    throw UsageError(fmt::format("--problem '{}': a line; names of dev/{}/shapes.txt are for `./ladder bench`: {}",
                                 line, pass.layer, error.what()));
  }
}

// Expand problems that name no dtype to all of `dtypes`; other problems keep theirs.
std::vector<Case> in_dtypes(const std::vector<Case>& problems, const std::vector<Dtype>& dtypes) {
  std::vector<Case> cases;
  for (const Case& problem : problems) {
    if (problem.names_dtype) {
      if (!in(dtypes, problem.dtype)) {
        throw UsageError(fmt::format("--dtype {} contradicts the problem '{}'", names_of(dtypes, ","), problem.text));
      }
      cases.push_back(problem);
      continue;
    }
    for (const Dtype dtype : kProblemDtypes) {
      if (in(dtypes, dtype)) cases.push_back(problem.with_dtype(dtype));
    }
  }
  return cases;
}

// Returns true if both patterns tell right from wrong on the inputs of `seed`.
bool is_trusted(const Version& v, const Case& c, std::uint64_t seed) {
  return std::ranges::all_of(std::array{Pattern::normal, Pattern::integer}, [&](Pattern pattern) {
    return accepted_null_answer(c, pattern, reference_run(c, pattern, seed), v.def).empty();
  });
}

}  // namespace

ChosenCases choose_cases(const Pass& pass, const std::vector<const Version*>& versions, const RequestedCases& requested,
                         backend::Kind kind) {
  const bool by_default = requested.problems.empty() && requested.set.empty() && kind == backend::Kind::gpu;
  std::vector<std::string> left_out;

  std::vector<Dtype> dtypes(std::begin(kProblemDtypes), std::end(kProblemDtypes));
  const std::vector<Dtype> there = dtypes_of(versions);
  const bool one_dtype = by_default && requested.dtype.empty() && !there.empty();
  if (one_dtype) {
    dtypes = {there.front()};
    const std::span<const Dtype> others = std::span(there).subspan(1);
    if (!others.empty()) left_out.push_back(names_of(others, ", ") + " (--dtype all)");
  } else if (!requested.dtype.empty() && requested.dtype != "all") {
    dtypes = dtypes_of(requested.dtype);
  }

  std::vector<Case> problems;
  for (const std::string& line : requested.problems) problems.push_back(parse_problem(line, pass));
  if (requested.problems.empty()) {
    const std::vector<ShapeSet> sets = shape_sets(pass.layer);
    const auto unet = std::ranges::find(sets, "unet", &ShapeSet::name);
    const bool has_perf = std::ranges::find(sets, "perf", &ShapeSet::name) != sets.end();
    const char* quick = kind == backend::Kind::emulator ? "ci" : has_perf || unet == sets.end() ? "perf" : "unet";
    for (NamedCase& named : named_cases(pass, requested.set.empty() ? quick : requested.set)) {
      if (!one_dtype || !named.problem.names_dtype || in(dtypes, named.problem.dtype))
        problems.push_back(std::move(named.problem));
    }
    if (by_default && has_perf && unet != sets.end()) {
      const std::size_t count = unet->lines.size();
      left_out.push_back(fmt::format("the {}problem{} of unet (--set unet)",
                                     count == 1 ? "" : fmt::format("{} ", count), count == 1 ? "" : "s"));
    }
  }
  return {.cases = in_dtypes(problems, dtypes),
          .left_out = fmt::format("{}", fmt::join(left_out, ", ")),
          .one_dtype = one_dtype};
}

std::vector<Case> random_cases(const Version& v, int count, std::uint64_t seed) {
  constexpr int kDraws = 20'000;
  std::mt19937_64 random(seed);
  std::vector<Case> cases;
  for (int draw = 0; draw < kDraws && std::ssize(cases) < count; ++draw) {
    Case drawn = v.pass->random(random()).with_dtype(v.def.dtypes[random() % v.def.dtypes.size()]);
    if (why_not(v, drawn).empty() && is_trusted(v, drawn, seed)) cases.push_back(std::move(drawn));
  }
  return cases;
}

std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> words(1);
  for (const char c : list) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::string names_of(std::span<const Dtype> dtypes, const char* between) {
  std::vector<std::string> names;
  names.reserve(dtypes.size());
  for (const Dtype dtype : dtypes) names.push_back(name(dtype));
  return fmt::format("{}", fmt::join(names, between));
}

}  // namespace ladder
