// Which version runs a problem, planned once for each device: the one of use(), else the promoted one, as in the trainer.
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

// What ran a problem of a pass, for explain().
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

// All choices so far, and those of use(). Thread-safe; a Choice stays where it is.
class Choices {
 public:
  static Choices& instance();

  // Of the thread's current device. Never throws for want of a version: `reason` then says why PyTorch has to do it.
  Choice& make(const Case& c, int device);
  Choice& none(const Pass& pass, std::string problem, int device, std::string reason);

  // "groupnorm/forward=v09,...", as the trainer's --use: these from now on, and no others. Throws UsageError.
  void use(const std::string& text);
  // The promoted versions of the thread's current device, with those of use() in their place.
  Promotions table(int device);
  int generation() const { return generation_; }  // another after each use()

  nlohmann::json explain() const;

 private:
  const Promotions& known_table(int device);  // under the lock

  mutable std::mutex mutex_;
  std::string used_;
  std::map<int, Promotions> tables_;  // by device, with used_ in them; each read once
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

// The plan for a problem on a device; its choice has no version where PyTorch has to run it.
template <class P>
const Planned<P>& planned(const typename P::Problem& problem, int device) {
  static std::shared_mutex mutex;
  static std::deque<Planned<P>> known;  // some dozen in a network
  Choices& choices = Choices::instance();
  const int generation = choices.generation();
  {
    const std::shared_lock lock(mutex);
    for (const Planned<P>& each : known) {
      if (each.device == device && each.generation == generation && each.problem == problem) return each;
    }
  }
  Planned<P> made{.problem = problem, .device = device, .generation = generation};
  try {
    const Case c = pass_of<P>().parse(problem.str());  // which finds out whether there is such a problem
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

// What a failed launch says: why, and how to reproduce it.
[[noreturn]] void fail(const Choice& choice, const std::exception& error);

// Enqueues the problem on the current stream of `like`'s device. False where PyTorch has to do it.
template <class P>
bool run(const typename P::Problem& problem, const typename P::Tensors& tensors, const Tensor& like) {
  const CurrentDevice device(like.get_device());
  const Planned<P>& at = planned<P>(problem, device.number());
  at.choice->calls.fetch_add(1, std::memory_order_relaxed);
  const Version* version = at.choice->version;
  if (version == nullptr) return false;
  try {
    const Workspace workspace(like, at.plan.workspace_bytes, version->def.private_workspace);
    at.plan.bind(tensors, workspace.pointer())(device.stream());
  } catch (const std::exception& error) {
    fail(*at.choice, error);
  }
  return true;
}

}  // namespace ladder::python
