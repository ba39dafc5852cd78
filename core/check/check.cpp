#include "core/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "core/backend.h"
#include "core/error.h"

namespace ladder {
namespace {

Verdict failed(std::string reason) { return {.status = Status::fail, .reason = std::move(reason)}; }

// Verdict on a finished launch: its outputs compared with the reference, and damage to guards or inputs.
Verdict judged(KernelUnderTest& kernel, CheckedCase& c, Pattern pattern, const AnyVersionDef& def) {
  const std::string damage = kernel.damage();
  const ExpectedOutputs& expected = c.run(pattern).expected;
  Verdict verdict = compare(*c, pattern, kernel.outputs(), expected, def);
  if (pattern != Pattern::outliers) {
    verdict = within_limit(std::move(verdict), *c, expected, def);
  } else if (!verdict.reason.empty()) {
    verdict.reason += ", on inputs with outliers";
  }
  if (damage.empty()) return verdict;
  verdict.reason = damage + (verdict.reason.empty() ? "" : "; " + verdict.reason);
  verdict.status = Status::fail;
  return verdict;
}

// Launch on the pattern's inputs, with NaNs in the outputs, and judge the result.
Verdict launched(KernelUnderTest& kernel, CheckedCase& c, Pattern pattern, const AnyVersionDef& def,
                 Contents workspace) {
  kernel.refill(c.run(pattern).inputs);
  kernel.reset(Contents::nan, workspace);
  const std::string fault = kernel.launch();
  return fault.empty() ? judged(kernel, c, pattern, def) : failed(fault);
}

// Outcome of a case under one schedule.
struct Outcome {
  std::string_view what;  // "passes", "faults" or "is wrong"
  std::string schedule;
  std::vector<std::vector<float>> outputs;  // empty if it faults
};

// Returns true if the outputs differ by more than reassociated sums explain: 1 % of a tensor's largest value.
bool differ(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  constexpr float kOfLargest = 0.01f;
  for (std::size_t i = 0; i < a.size(); ++i) {
    float largest = 0;
    for (const float value : a[i]) largest = std::max(largest, std::isfinite(value) ? std::abs(value) : 0);
    for (std::size_t element = 0; element < a[i].size(); ++element) {
      const float x = a[i][element], y = b[i][element];
      const bool same = x == y || (std::isnan(x) && std::isnan(y));
      if (!same && !(std::abs(x - y) <= kOfLargest * largest)) return true;
    }
  }
  return false;
}

// Returns UNTRUSTED if one of the patterns would accept a null answer (accepted_null_answer()), else a pass.
Verdict untrusted_null_answer(CheckedCase& c, const std::vector<Pattern>& patterns, const AnyVersionDef& def) {
  for (const Pattern pattern : patterns) {
    if (std::string null = accepted_null_answer(*c, pattern, c.run(pattern), def); !null.empty()) {
      return {.status = Status::untrusted, .reason = std::move(null)};
    }
  }
  return {};
}

// Launch Pattern::normal once more, after all patterns, with random numbers instead of NaNs in the outputs. Returns
// empty, or the fault: the bits of `first`, its first outputs, may depend neither on earlier launches nor on the
// outputs' contents.
std::string first_again(KernelUnderTest& kernel, CheckedCase& c, const std::vector<std::vector<float>>& first) {
  kernel.refill(c.run(Pattern::normal).inputs);
  kernel.reset(Contents::random, Contents::kept);
  std::string fault = kernel.launch();
  if (fault.empty()) fault = kernel.damage();
  return fault.empty() ? other_bits(first, kernel.outputs(), "a launch on numbers instead of poison") : fault;
}

Verdict check_patterns(KernelUnderTest& kernel, CheckedCase& c, const std::vector<Pattern>& patterns,
                       const AnyVersionDef& def) try {
  std::optional<Verdict> first;
  std::vector<std::vector<float>> outputs;
  for (const Pattern pattern : patterns) {
    Verdict verdict = launched(kernel, c, pattern, def, first ? Contents::kept : Contents::nan);
    if (verdict.status != Status::pass) return verdict;
    if (first) continue;
    first = std::move(verdict);
    outputs = kernel.outputs();
  }
  // Skip outliers if the error growth is larger, as for Winograd: such a version adds products that the formula does
  // not have and subtracts them again, which leaves an outlier's rounding error.
  const bool bears_outliers = def.error_growth <= 4;
  if (patterns.size() > 1 && bears_outliers && is_small(*c) && backend::schedule() == backend::schedules().front()) {
    Verdict verdict = launched(kernel, c, Pattern::outliers, def, Contents::kept);
    if (verdict.status != Status::pass) return verdict;
  }
  if (patterns.size() > 1) {
    if (std::string fault = first_again(kernel, c, outputs); !fault.empty()) return failed(std::move(fault));
  }
  // Launch on a stream that is held back, to find work enqueued elsewhere. The emulator cannot hold one back.
  if (backend::kind() == backend::Kind::emulator) return *first;
  kernel.reset(Contents::nan, Contents::kept);
  if (std::string fault = kernel.launch_held(); !fault.empty()) return failed(std::move(fault));
  const Verdict delayed = judged(kernel, c, patterns.front(), def);
  return delayed.status == Status::pass ? *first : delayed;
} catch (const Failure& failure) {  // the process that runs the kernel has died
  return failed(one_line(failure.what()));
}

// Returns a pass if the version can be checked on the case, else SKIP with the reason.
Verdict not_to_run(const Version& v, const Case& c) {
  if (std::string reason = why_not(v, c); !reason.empty()) return {.status = Status::skip, .reason = std::move(reason)};
  if (const std::string problem = endless_problem(v); !problem.empty()) {
    return {.status = Status::skip, .reason = fmt::format("it loops for ever on '{}'", problem)};
  }
  return {};
}

Verdict check_patterns(const Version& v, CheckedCase& c, const std::vector<Pattern>& patterns,
                       const std::string& plan) {
  if (Verdict skip = not_to_run(v, *c); skip.status != Status::pass) return skip;
  Verdict null = untrusted_null_answer(c, patterns, v.def);
  if (null.status != Status::pass) return null;
  std::unique_ptr<KernelUnderTest> kernel;
  try {
    kernel = bound_here(v, *c, plan);
  } catch (const std::exception& error) {
    return failed(one_line(error.what()));
  }
  return check_patterns(*kernel, c, patterns, v.def);
}

}  // namespace

const char* name(Status status) {
  switch (status) {
    case Status::pass:
      return "PASS";
    case Status::fail:
      return "FAIL";
    case Status::skip:
      return "SKIP";
    case Status::untrusted:
      return "UNTRUSTED";
    case Status::unchecked:
      return "UNCHECKED";
  }
  return "?";
}

std::string difference_between_schedules(const Version& v, CheckedCase& c, const std::string& plan) {
  if (backend::schedules().size() == 1) return {};
  const std::string before = backend::schedule();
  std::optional<Outcome> first;
  std::string difference;
  try {
    const std::unique_ptr<KernelUnderTest> kernel = bound_here(v, *c, plan);
    for (const std::string& schedule : backend::schedules()) {
      if (!endless_problem(v).empty() || !difference.empty()) break;
      backend::set_schedule(schedule);
      const Verdict verdict = launched(*kernel, c, Pattern::normal, v.def, Contents::nan);
      const bool faults = verdict.status == Status::fail && verdict.error == 0;  // a launch that failed has no error
      Outcome outcome{.what = verdict.status == Status::pass ? "passes"
                              : faults                       ? "faults"
                                                             : "is wrong",
                      .schedule = schedule,
                      .outputs = faults ? std::vector<std::vector<float>>() : kernel->outputs()};
      if (!first) {
        first = std::move(outcome);
      } else if (first->what != outcome.what || differ(first->outputs, outcome.outputs)) {
        difference =
            fmt::format("differs between schedules: likely a race; it {} under {}, and {} under {}", first->what,
                        first->schedule, first->what == outcome.what ? "otherwise" : outcome.what, schedule);
      }
    }
  } catch (const std::exception&) {  // planning or binding failed, which depends on no schedule
  }
  backend::set_schedule(before);
  return difference;
}

Verdict check(const Version& v, CheckedCase& c, Pattern pattern, const std::string& plan) {
  return check_patterns(v, c, {pattern}, plan);
}

Verdict check(const Version& v, CheckedCase& c, const std::string& plan) {
  return check_patterns(v, c, {Pattern::normal, Pattern::integer}, plan);
}

Verdict check(KernelUnderTest& kernel, CheckedCase& c, const AnyVersionDef& def) {
  const std::vector<Pattern> patterns = {Pattern::normal, Pattern::integer};
  Verdict null = untrusted_null_answer(c, patterns, def);
  return null.status == Status::pass ? check_patterns(kernel, c, patterns, def) : null;
}

std::string other_bits(const std::vector<std::vector<float>>& first, const std::vector<std::vector<float>>& other,
                       const std::string& which) {
  for (std::size_t i = 0; i < other.size(); ++i) {
    if (!other[i].empty() && std::memcmp(other[i].data(), first[i].data(), other[i].size() * sizeof(float)) == 0)
      continue;
    for (std::size_t element = 0; element < other[i].size(); ++element) {
      if (std::bit_cast<std::uint32_t>(other[i][element]) == std::bit_cast<std::uint32_t>(first[i][element])) continue;
      return fmt::format("{} gave other bits than the first launch: output {}, element {}: {} and {}", which, i,
                         element, other[i][element], first[i][element]);
    }
  }
  return {};
}

Verdict check_conduct(const Version& v, CheckedCase& c, int launches, const std::string& plan) try {
  if (Verdict skip = not_to_run(v, *c); skip.status != Status::pass) return skip;
  return check_conduct(*bound_here(v, *c, plan), c, launches, v.def);
} catch (const std::exception& error) {
  return failed(one_line(error.what()));
}

Verdict check(const Version& v, const Case& c, std::uint64_t seed) {
  CheckedCase checked(c, seed);
  return check(v, checked);
}

}  // namespace ladder
