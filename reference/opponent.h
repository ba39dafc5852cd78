// Opponents: what a kernel has to beat. One for a pass, registered by reference/<layer>_<library>.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/registry.h"

namespace ladder {

struct Plan {
  std::string name = {};    // the library's own name of the plan or engine with its knobs, and the layout it works in
  double seconds = 0;       // as `measure` returned it; 0 for a plan that was not timed
  std::string reason = {};  // why it was not: the library's message, or the workspace it asked for
};

// Seconds one call of `work` takes on the device, cold; how plans are ranked.
using Measure = std::function<double(const std::function<void(Stream)>& work)>;

// How far to look for the library's best plan.
enum class Search {
  all,        // every engine, and every configuration that the heuristics know
  listed,     // the configurations that the heuristics know: a fraction of the time
  heuristic,  // only the heuristic's first choice: what an untuned user gets
  none,       // no opponent at all: for tools that would look into the library's kernels, too
};

// A library's best plan for one case on given tensors. Launching enqueues exactly that plan on the stream.
class Opponent {
 public:
  virtual ~Opponent() = default;
  virtual std::string library() const = 0;           // "cuDNN 9.19.0"
  virtual void launch(Stream stream) = 0;            // the plan that measured fastest
  virtual void launch_heuristic(Stream stream) = 0;  // what the library's heuristic picks first: an untuned user's plan
  virtual const Plan& best() const = 0;
  virtual const Plan& heuristic() const = 0;
  virtual const std::vector<Plan>& tried() const = 0;  // every plan, the failed ones too
  virtual std::size_t workspace_bytes() const = 0;
  // Brings the latest launch's result into the case's output tensor, where the plan works on copies in another layout.
  // Waits for the device. Not part of what is timed.
  virtual void finish() = 0;
};

// Makes the opponent for a case. `pointers` are device tensors in the order of Case::tensors, the output its own. Throws
// Failure naming the reason when the library refuses the problem.
using OpponentFactory = std::unique_ptr<Opponent> (*)(const Case& c, void* const* pointers, Search search,
                                                      const Measure& measure);

bool register_opponent(const Pass& pass, OpponentFactory factory);

// Null where the pass has no opponent in this build (the emulator, or a build without cuDNN).
OpponentFactory opponent_of(const Pass& pass);

}  // namespace ladder

#define LADDER_OPPONENT(P, factory)                                                                                 \
  namespace {                                                                                                       \
  [[maybe_unused]] const bool LADDER_UNIQUE(ladder_opponent_) = ::ladder::register_opponent(::ladder::pass_of<P>(), \
                                                                                            factory);               \
  }
