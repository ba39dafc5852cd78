#include "core/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <thread>

#include "core/backend.h"
#include "core/error.h"

namespace ladder {
namespace {

Verdict failed(std::string reason) { return {.status = Status::fail, .reason = std::move(reason)}; }

// Versions of which a kernel had to be ended, with the problem of that: another one would take as long.
std::map<const Version*, std::string>& endless_versions() {
  static std::map<const Version*, std::string> problems;
  return problems;
}

// Runs `enqueue`, work of the version's, and waits; an exception becomes a reason.
std::string wait_for(const Version& v, const Case& c, const std::function<void()>& enqueue) {
  try {
    enqueue();
    backend::synchronize();
    return {};
  } catch (const Endless& error) {
    endless_versions()[&v] = c.text;
    return one_line(error.what());
  } catch (const std::exception& error) {
    return one_line(error.what());
  }
}

// One kernel of a version with the buffers that it is checked in.
class Check {
 public:
  Check(const Version& v, CheckedCase& c, const std::string& plan_name)
      : version_(v),
        case_(c),
        kernel_(plan(v, *c, plan_name)),
        tensors_(*c, c.run(Pattern::normal).inputs, kernel_.workspace_bytes),
        launch_(kernel_.bind(tensors_.pointers(), tensors_.workspace())) {}

  Verdict run(Pattern pattern) {
    tensors_.refill(case_.run(pattern).inputs);
    tensors_.reset();
    const std::string error = wait_for(version_, *case_, [&] { launch_(backend::check_stream()); });
    return error.empty() ? compare_outputs(pattern) : failed(error);
  }

  std::vector<std::vector<float>> outputs() const { return tensors_.outputs(); }

  // Once more on a stream that is kept back: whatever is written meanwhile was not enqueued there, and would escape a
  // timer that listens to the stream. Comes after ordinary launches, because the first one may load the kernel, and that
  // waits for the device.
  Verdict run_held(Pattern pattern) {
    tensors_.reset();
    backend::hold();
    bool untouched = true;
    bool waited = false;
    const std::string error = wait_for(version_, *case_, [&] {
      launch_(backend::check_stream());
      constexpr std::chrono::milliseconds kTimeForStrays{1};
      std::this_thread::sleep_for(kTimeForStrays);
      untouched = tensors_.untouched();
      waited = !backend::let_go();
    });
    if (!error.empty()) {
      backend::let_go();
      return failed(error);
    }
    if (waited) return failed("launch() waits for the device instead of enqueueing on its stream");
    if (!untouched) return failed("work outside the stream that launch() was given");
    return compare_outputs(pattern);
  }

 private:
  Verdict compare_outputs(Pattern pattern) {
    const std::string damage = tensors_.damage();
    const ExpectedOutputs& expected = case_.run(pattern).expected;
    Verdict verdict = compare(*case_, pattern, tensors_.outputs(), expected, version_.def);
    verdict = within_limit(std::move(verdict), *case_, expected, version_.def);
    if (damage.empty()) return verdict;
    verdict.reason = damage + (verdict.reason.empty() ? "" : "; " + verdict.reason);
    verdict.status = Status::fail;
    return verdict;
  }

  const Version& version_;
  CheckedCase& case_;
  Kernel kernel_;
  DeviceTensors tensors_;
  BoundLaunch launch_;
};

// What came of a case under a schedule.
struct Outcome {
  std::string_view what;
  std::string schedule;
  std::vector<std::vector<float>> outputs;
};

// By more than sums do that are added up in another order.
bool differ(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  constexpr float kOfLargest = 0.01f;
  for (std::size_t i = 0; i < a.size(); ++i) {
    float largest = 0;
    for (const float value : a[i]) largest = std::max(largest, std::isnan(value) ? 0 : std::abs(value));
    for (std::size_t at = 0; at < a[i].size(); ++at) {
      const bool both_nan = std::isnan(a[i][at]) && std::isnan(b[i][at]);
      if (!both_nan && !(std::abs(a[i][at] - b[i][at]) <= kOfLargest * largest)) return true;
    }
  }
  return false;
}

Verdict check_patterns(const Version& v, CheckedCase& c, const std::vector<Pattern>& patterns,
                       const std::string& plan) {
  if (std::string reason = why_not(v, *c); !reason.empty())
    return {.status = Status::skip, .reason = std::move(reason)};
  if (const auto endless = endless_versions().find(&v); endless != endless_versions().end()) {
    return {.status = Status::skip, .reason = fmt::format("it loops for ever on '{}'", endless->second)};
  }
  for (const Pattern pattern : patterns) {
    if (std::string null = accepted_null_answer(*c, pattern, c.run(pattern), v.def); !null.empty()) {
      return {.status = Status::untrusted, .reason = std::move(null)};
    }
  }
  std::optional<Check> check;
  if (std::string error = wait_for(v, *c, [&] { check.emplace(v, c, plan); }); !error.empty()) return failed(error);

  std::optional<Verdict> first;
  for (const Pattern pattern : patterns) {
    Verdict verdict = check->run(pattern);
    if (verdict.status != Status::pass) return verdict;
    if (!first) first = std::move(verdict);
  }
  if (backend::kind() == backend::Kind::emulator) return *first;
  const Verdict held = check->run_held(patterns.back());
  return held.status == Status::pass ? *first : held;
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
    Check check(v, c, plan);
    for (const std::string& schedule : backend::schedules()) {
      if (endless_versions().contains(&v) || !difference.empty()) break;
      backend::set_schedule(schedule);
      const Verdict verdict = check.run(Pattern::normal);
      const bool faults = verdict.status == Status::fail && verdict.error == 0;
      Outcome outcome{.what = verdict.status == Status::pass ? "passes"
                              : faults                       ? "faults"
                                                             : "is wrong",
                      .schedule = schedule,
                      .outputs = faults ? std::vector<std::vector<float>>() : check.outputs()};
      if (!first) {
        first = std::move(outcome);
      } else if (first->what != outcome.what || differ(first->outputs, outcome.outputs)) {
        difference =
            fmt::format("differs between schedules: likely a race; it {} under {}, and {} under {}", first->what,
                        first->schedule, first->what == outcome.what ? "otherwise" : outcome.what, schedule);
      }
    }
  } catch (const std::exception&) {  // the plan's or the binding's, as under every schedule
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

Verdict check(const Version& v, const Case& c, std::uint64_t seed) {
  CheckedCase checked(c, seed);
  return check(v, checked);
}

}  // namespace ladder
