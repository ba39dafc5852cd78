#include "core/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "core/backend.h"
#include "core/error.h"

namespace ladder {
namespace {

Verdict failed(std::string reason) { return {.status = Status::fail, .reason = std::move(reason)}; }

// Runs `enqueue` and waits; an exception becomes a reason. It is the version's own: nothing else is running.
std::string run(const std::function<void()>& enqueue) {
  try {
    enqueue();
    backend::synchronize();
    return {};
  } catch (const std::exception& error) {
    return one_line(error.what());
  }
}

Verdict check_outputs(const Case& c, Pattern pattern, const DeviceTensors& tensors, const ExpectedOutputs& answers) {
  const std::string damage = tensors.damage();
  Verdict verdict = compare(c, pattern, tensors.outputs(), answers);
  if (damage.empty()) return verdict;
  verdict.reason = damage + (verdict.reason.empty() ? "" : "; " + verdict.reason);
  verdict.status = Status::fail;
  return verdict;
}

// Once more on a stream that is kept back: whatever is written meanwhile was not enqueued there, and would escape a
// timer that listens to the stream. Empty, or what was wrong. Comes after ordinary launches, because the first one may
// load the kernel, and that waits for the device.
std::string stream_fault(const std::function<void()>& enqueue, DeviceTensors& tensors) {
  tensors.poison();
  backend::hold();
  bool untouched = true;
  bool waited = false;
  const std::string error = run([&] {
    enqueue();
    constexpr std::chrono::milliseconds kTimeForStrays{1};
    std::this_thread::sleep_for(kTimeForStrays);
    untouched = tensors.untouched();
    waited = !backend::let_go();
  });
  if (!error.empty()) {
    backend::let_go();
    return error;
  }
  if (waited) return "launch() waits for the device instead of enqueueing on its stream";
  if (!untouched) return "work outside the stream that launch() was given";
  return {};
}

Verdict run_and_check(const std::function<void()>& enqueue, const Case& c, Pattern pattern, const ReferenceRun& checked,
                      DeviceTensors& tensors) {
  tensors.refill(checked.inputs);
  tensors.poison();
  if (std::string error = run(enqueue); !error.empty()) return failed(std::move(error));
  return check_outputs(c, pattern, tensors, checked.answers);
}

Verdict check_patterns(const Version& v, const Case& plain, const std::vector<Pattern>& patterns, std::uint64_t seed) {
  const Case c = v.checked_as(plain);
  if (std::string reason = why_not(v, c); !reason.empty()) return {.status = Status::skip, .reason = std::move(reason)};
  std::vector<std::shared_ptr<const ReferenceRun>> checked;
  for (const Pattern pattern : patterns) {
    checked.push_back(ladder::reference_run(c, pattern, seed));
    if (std::string null = accepted_null_answer(c, pattern, *checked.back()); !null.empty()) {
      return {.status = Status::untrusted, .reason = std::move(null)};
    }
  }
  DeviceTensors tensors(c, checked.front()->inputs, v.workspace_bytes(c));
  const auto enqueue = [&] { v.launch(c, tensors.pointers(), tensors.workspace(), backend::check_stream()); };

  std::optional<Verdict> first;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const Verdict verdict = run_and_check(enqueue, c, patterns[i], *checked[i], tensors);
    if (verdict.status != Status::pass) return verdict;
    if (!first) first = verdict;
  }
  if (backend::kind() == backend::Kind::emulator) return *first;

  if (std::string error = stream_fault(enqueue, tensors); !error.empty()) return failed(std::move(error));
  const Verdict held = check_outputs(c, patterns.back(), tensors, checked.back()->answers);
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

std::string why_not(const Version& v, const Case& c) {
  if (!v.has(c.dtype)) {
    std::vector<std::string> has;
    for (const Dtype dtype : v.dtypes) has.push_back(name(dtype));
    return fmt::format("{} has no {}; it has {}", v.label(), name(c.dtype), fmt::join(has, ", "));
  }
  if (const char* reason = v.supports(c)) return reason;
  if (const char* reason = backend::unavailable()) return reason;
  if (const int arch = backend::device().arch; v.arch_specific ? arch != v.min_arch : arch < v.min_arch) {
    return fmt::format("{} needs sm_{}{}; {} is sm_{}", v.label(), v.min_arch, v.arch_specific ? "a" : "",
                       backend::device().name, arch);
  }
  return {};
}

Verdict check(const Version& v, const Case& c, Pattern pattern, std::uint64_t seed) {
  return check_patterns(v, c, {pattern}, seed);
}

Verdict check(const Version& v, const Case& c, std::uint64_t seed) {
  return check_patterns(v, c, {Pattern::normal, Pattern::integer}, seed);
}

}  // namespace ladder
