// Choice and planning of the version that runs a problem, once per device: the version of use(), else the promoted one,
// as in the trainer.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <shared_mutex>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/kernel.h"
#include "core/registry.h"
#include "python/csrc/machine.h"
#include "python/csrc/tensors.h"
#include "runtime/promoted.h"

namespace ladder::python {

// The version chosen for a problem of a pass, with the number of calls, for explain().
struct Choice {
  const Pass* pass = nullptr;
  std::string problem;
  int device = 0;
  const Version* version = nullptr;  // null: PyTorch's own operators
  std::string reason;
  std::atomic<std::int64_t> calls = 0;
};

// The rows of explain().
nlohmann::json rows_of(const std::deque<Choice>& choices);

// All choices made in this process, and the versions of use(). Thread-safe; the address of a Choice does not change.
class Choices {
 public:
  static Choices& instance();

  // Chooses a version for the thread's current device. If there is none, `version` is null and `reason` says why
  // PyTorch runs the problem; make() does not throw for that.
  Choice& make(const Case& c, int device);
  Choice& none(const Pass& pass, std::string problem, int device, std::string reason);

  // Sets the requested versions, "groupnorm/forward=v09,..." as in the trainer's --use, in place of earlier ones.
  // Throws UsageError.
  void use(const std::string& text);
  // The promoted versions of the thread's current device, overridden by the versions of use().
  Promotions table(int device);
  int generation() const { return generation_; }  // incremented by each use()

  nlohmann::json explain() const;

 private:
  const Promotions& known_table(int device);  // requires mutex_

  mutable std::mutex mutex_;
  std::string used_;
  std::map<int, Promotions> tables_;  // by device, overridden by used_; each file is read once
  std::atomic<int> generation_ = 0;
  std::deque<Choice> made_;
};

template <class P>
struct Planned {
  typename P::Problem problem;
  int device = 0;
  int generation = 0;
  Choice* choice = nullptr;
  KernelPlan<P> plan;
};

// Returns the plan for a problem on a device. Its choice has no version where PyTorch runs the problem.
template <class P>
const Planned<P>& planned(const typename P::Problem& problem, int device) {
  static std::shared_mutex mutex;
  static std::deque<Planned<P>> known;  // a few dozen for a network
  Choices& choices = Choices::instance();
  const int generation = choices.generation();
  {
    const std::shared_lock lock(mutex);
    for (const Planned<P>& entry : known) {
      if (entry.device == device && entry.generation == generation && entry.problem == problem) return entry;
    }
  }
  Planned<P> made{.problem = problem, .device = device, .generation = generation};
  try {
    const Case c = pass_of<P>().parse(problem.str());  // throws UsageError for an invalid problem
    made.choice = &choices.make(c, device);
    if (made.choice->version != nullptr) {
      const auto& def = *static_cast<const VersionDef<P>*>(made.choice->version->typed);
      made.plan = std::move(VersionOf<P>(def).plans(problem_of<P>(c)).front());
    }
  } catch (const UsageError& error) {
    made.choice = &choices.none(pass_of<P>(), problem.str(), device, error.what());
  }
  const std::unique_lock lock(mutex);
  return known.emplace_back(std::move(made));
}

// Throws the Failure of a failed launch, with the reason and a command that reproduces it.
[[noreturn]] void fail(const Choice& choice, const std::exception& error);

// Enqueues the problem on the current stream of `like`'s device. Returns false, with nothing enqueued, where PyTorch
// has to run it.
template <class P>
bool run(const typename P::Problem& problem, const typename P::Tensors& tensors, const Tensor& like) {
  const CurrentDevice device(like.get_device());
  const Planned<P>& entry = planned<P>(problem, device.number());
  entry.choice->calls.fetch_add(1, std::memory_order_relaxed);
  const Version* version = entry.choice->version;
  if (version == nullptr) return false;
  try {
    const Workspace workspace(like, entry.plan.workspace_bytes, version->def.private_workspace);
    entry.plan.bind(tensors, workspace.pointer())(device.stream());
  } catch (const std::exception& error) {
    fail(*entry.choice, error);
  }
  return true;
}

}  // namespace ladder::python
