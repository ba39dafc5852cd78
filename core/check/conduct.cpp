// Checks of a kernel under the conditions of real use: a workspace with any contents, a second binding of the same
// kernel, inputs that arrive after the launch was enqueued, and many launches.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/error.h"
#include "core/splitmix64.h"

namespace ladder {
namespace {

using Outputs = std::vector<std::vector<float>>;

constexpr int kFewestLaunches = 3;

// Returns a value of the tensor that differs from the given element's. If all elements are equal, it is their value.
float other_value(const std::vector<float>& values, std::size_t element) {
  const std::size_t count = values.size();
  for (std::size_t step = 1; step < count; ++step) {
    const float other = values[(element + step * (count / 3 + 1)) % count];
    if (other != values[element]) return other;
  }
  return values[element];
}

// Returns the inputs with `num_changes` elements of each replaced by the value of another element, at offsets that
// depend on seed and problem. A kernel that recognises an input by a few sampled elements takes the changed one for the
// original; a sum of all elements tells them apart.
HostTensors nearly_equal_inputs(const Case& c, const HostTensors& inputs, std::uint64_t seed, int num_changes) {
  HostTensors others = inputs;
  const std::uint64_t key = seed ^ std::hash<std::string>{}(c.text);
  for (std::vector<float>& values : others.values) {
    if (values.empty()) continue;
    for (int i = 0; i < num_changes; ++i) {
      const std::uint64_t word = splitmix64_mix(key + static_cast<std::uint64_t>(i) * kSplitmixGamma);
      const std::size_t element = word % values.size();
      values[element] = other_value(values, element);
    }
  }
  if (c.pass->derive) c.pass->derive(c, others);
  return others;
}

class Conduct {
 public:
  Conduct(KernelUnderTest& kernel, CheckedCase& c, int launches, const AnyVersionDef& def)
      : kernel_(kernel), c_(c), launches_(launches), def_(def) {}

  // Returns empty, or the first fault. Every rule (any_workspace() to many()) compares with this first launch.
  std::string run() {
    kernel_.refill(inputs());
    kernel_.reset();
    const auto started = std::chrono::steady_clock::now();
    if (std::string fault = kernel_.launch(); !fault.empty()) return fault;
    if (backend::kind() == backend::Kind::gpu) {
      constexpr double kMostSeconds = 0.5;
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
      const double fitting = std::max<double>(kFewestLaunches, kMostSeconds / seconds);
      if (launches_ > fitting) launches_ = static_cast<int>(fitting);
    }
    first_ = kernel_.outputs();
    if (kernel_.private_workspace()) digest_ = kernel_.workspace_digest();
    for (const auto rule : {&Conduct::any_workspace, &Conduct::bound_twice, &Conduct::before_inputs, &Conduct::many}) {
      if (std::string fault = (this->*rule)(); !fault.empty()) return fault;
    }
    return {};
  }

 private:
  const HostTensors& inputs() { return c_.run(Pattern::normal).inputs; }

  // Returns empty, or the fault of a launch on the first inputs: damage, output bits other than the first launch's, or
  // other bytes in the private workspace.
  std::string judged(KernelUnderTest& kernel, const std::string& which) {
    if (std::string damage = kernel.damage(); !damage.empty()) return which + ": " + damage;
    const std::string difference = other_bits(first_, kernel.outputs(), which);
    return difference.empty() && &kernel == &kernel_ ? kept_answer(which) : difference;
  }

  // A private workspace is for flags: an answer that the kernel keeps there changes the digest.
  std::string kept_answer(const std::string& which) {
    if (!kernel_.private_workspace() || kernel_.workspace_digest() == digest_) return {};
    return which + " left other bytes in its private workspace than the first";
  }

  // Launch on a workspace of zeros, random or partly random numbers. Only a kernel bound anew may find such contents in
  // its private workspace.
  std::string any_workspace() {
    if (!kernel_.has_workspace()) return {};
    const struct {
      Contents contents;
      const char* name;
    } rules[] = {{Contents::zero, "a launch on a workspace of zeros"},
                 {Contents::random, "a launch on a workspace of random numbers"},
                 {Contents::partly_random, "a launch on a workspace of which an eighth was overwritten"}};
    for (const auto& [contents, name] : rules) {
      if (kernel_.private_workspace() && contents == Contents::partly_random) continue;
      const std::unique_ptr<KernelUnderTest> private_one = kernel_.private_workspace() ? kernel_.another() : nullptr;
      KernelUnderTest& kernel = private_one ? *private_one : kernel_;
      if (private_one) private_one->refill(inputs());
      kernel.reset(Contents::random, contents);
      if (std::string fault = kernel.launch(); !fault.empty()) return std::string(name) + ": " + fault;
      if (std::string fault = judged(kernel, name); !fault.empty()) return fault;
    }
    return {};
  }

  std::string bound_twice() {
    // Numbers of changed elements per input. A single change may hit an element that a cheating version samples, or be
    // too small to show in the answer. A large problem, whose every launch costs copies of its tensors, has one round.
    const std::vector<int> changes = is_small(*c_) ? std::vector{1, 4, 16} : std::vector{4};
    const std::unique_ptr<KernelUnderTest> second = kernel_.another();
    std::string fault;
    for (std::size_t i = 0; i < changes.size() && fault.empty(); ++i) {
      const HostTensors others = nearly_equal_inputs(*c_, inputs(), c_.seed() + i, changes[i]);
      Outputs fresh;
      fault = launch_both(*second, others, fresh);
      if (fault.empty() && ((i == 0 && is_small(*c_)) || fresh == first_)) fault = wrong(fresh, others);
    }
    return fault;
  }

  // Compare the outputs on the changed inputs with the reference. Bits alone do not show a cheat that keeps its answer
  // under a sample of the inputs: both bindings then return the same stale answer.
  std::string wrong(const Outputs& outputs, const HostTensors& others) {
    const ExpectedOutputs expected = reference_outputs(*c_, others);
    const Verdict verdict = within_limit(compare(*c_, Pattern::normal, outputs, expected, def_), *c_, expected, def_);
    return verdict.status == Status::pass ? "" : "after an element of each input changed: " + verdict.reason;
  }

  // Launch `second` on `others` and the first kernel on its own inputs, which must give the first launch's bits. Then
  // launch the first on `others` too, which must give the bits of the second. `fresh` receives the second's outputs.
  std::string launch_both(KernelUnderTest& second, const HostTensors& others, Outputs& fresh) {
    second.refill(others);
    kernel_.reset(Contents::nan, Contents::kept);
    second.reset(Contents::nan, Contents::kept);
    std::string fault = second.launch();
    if (fault.empty()) fault = kernel_.launch();
    if (!fault.empty()) return "bound twice: " + fault;
    if (fault = judged(kernel_, "the first of two that are bound"); !fault.empty()) return fault;
    fresh = second.outputs();
    kernel_.refill(others);
    kernel_.reset(Contents::nan, Contents::kept);
    fault = kernel_.launch();
    const std::string which = "a launch after an element of each input changed";
    if (fault.empty()) fault = other_bits(fresh, kernel_.outputs(), which);
    if (fault.empty()) fault = kept_answer(which);
    kernel_.refill(inputs());
    return fault;
  }

  std::string before_inputs() {
    std::size_t bytes = 0;
    for (const TensorSpec& spec : c_->tensors) bytes += spec.is_read() ? spec.bytes() : 0;
    constexpr std::size_t kMost = 256u << 20;  // bytes of inputs that are copied while the stream is held back
    if (bytes > kMost) return {};
    kernel_.reset(Contents::nan, Contents::kept);
    std::string fault = kernel_.launch_before_inputs();
    return fault.empty() ? judged(kernel_, "a launch that was enqueued before its inputs arrived") : fault;
  }

  std::string many() {
    if (launches_ <= 1) return {};
    std::string fault = kernel_.launch(launches_ - 1);
    kernel_.reset(Contents::nan, Contents::kept);
    if (fault.empty()) fault = kernel_.launch();
    return fault.empty() ? judged(kernel_, fmt::format("the last of {} launches", launches_)) : fault;
  }

  KernelUnderTest& kernel_;
  CheckedCase& c_;
  int launches_;
  const AnyVersionDef& def_;
  Outputs first_;
  std::uint64_t digest_ = 0;
};

}  // namespace

int conduct_launches() { return backend::kind() == backend::Kind::gpu ? kConductLaunches : kFewestLaunches; }

Verdict full_check(const Version& v, CheckedCase& c) {
  static std::set<const Version*> checked;
  const Verdict verdict = check(v, c);
  if (verdict.status != Status::pass) return verdict;
  if (backend::kind() == backend::Kind::emulator && !checked.insert(&v).second) return verdict;
  const Verdict conduct = check_conduct(v, c, conduct_launches());
  return conduct.status == Status::pass ? verdict : conduct;
}

Verdict check_conduct(KernelUnderTest& kernel, CheckedCase& c, int launches, const AnyVersionDef& def) {
  std::string fault;
  try {
    fault = Conduct(kernel, c, launches, def).run();
  } catch (const std::exception& error) {
    fault = one_line(error.what());
  }
  if (fault.empty()) return {};
  return {.status = Status::fail, .reason = std::move(fault)};
}

}  // namespace ladder
