// Baselines: library implementations that a kernel has to beat. A pass has one for each library that supports it,
// registered by reference/<layer>_<library>.cpp or, for PyTorch, by reference/pytorch/<layer>.py. The harness sees them
// merged into one baseline, whose best plan is the fastest of all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/check/check.h"
#include "core/registry.h"

namespace ladder {

struct BaselinePlan {
  std::string library = {};  // "cuDNN": the name its baseline was registered with
  std::string name = {};     // the library's own name of the plan or engine with its knobs, and the layout it works in
  double seconds = 0;        // as `measure` returned it; 0 for a plan that was not timed
  std::string reason = {};   // why the plan was not timed: the library's message, or the workspace it asked for
};

// Returns the seconds of one call of `work` on the device with a cold L2. Plans are ranked by this time.
using Measure = std::function<double(const std::function<void(Stream)>& work)>;

// Median of a few of a plan's samples, in seconds. A hopelessly slow plan is sampled once.
double typical_seconds(const std::function<double()>& sample);

class Baseline;

// Extent of the search for a library's best plan.
struct Search {
  enum Extent : std::uint8_t {
    all,        // every engine, and every configuration that the heuristics know
    listed,     // the configurations that the heuristics know: a fraction of the time
    heuristic,  // only the heuristic's first choice: what an untuned user gets
    none,       // no baseline at all: for tools that would otherwise instrument the library's kernels too
  };
  Search(Extent extent = all) : extent(extent) {}  // NOLINT(google-explicit-constructor): an extent is a whole search

  Extent extent;
  // Returns the name of the best plan of an earlier full search with this release of a library ("cuDNN 9.19.0"); empty
  // for none. A baseline that gets a name runs this plan and the heuristic's choice, no others.
  std::function<std::string(const std::string& library)> kept_plan = [](const std::string&) { return std::string(); };
  std::function<void(const Baseline&)> keep = {};  // called with each baseline after a full search; may be empty
};

// Search that found a baseline's best plan, weakest first.
enum class Searched : std::uint8_t {
  heuristic,
  listed,
  kept,  // full search of an earlier run
  all,
};
const char* name(Searched searched);

enum class Choice : std::uint8_t {
  best,       // the plan that measured fastest
  heuristic,  // what the library picks first: an untuned user's plan
};

// The plans that libraries have for one case on given tensors.
class Baseline {
 public:
  virtual ~Baseline() = default;
  virtual std::string library() const = 0;                      // "cuDNN 9.19.0"
  virtual std::string missing() const { return {}; }            // which libraries have no plan, and why; or empty
  virtual const std::vector<BaselinePlan>& tried() const = 0;   // every plan, the failed ones too
  virtual const BaselinePlan& plan(Choice choice) const = 0;    // one of tried()
  virtual Searched searched() const { return Searched::all; }   // the weakest search of several libraries
  virtual std::size_t workspace_bytes() const = 0;              // of the best plan
  virtual bool makes(const TensorSpec&) const { return true; }  // true if the best plan computes this output
  virtual Dtype takes(const TensorSpec& input) const {
    return input.dtype;
  }  // dtype to which the best plan rounds this input

  // Returns a function that enqueues the chosen plan alone on a stream. Empty for a plan that runs in another process
  // with its own timer: sample() then takes one cold sample there, in seconds, empty_seconds() of which are the timer's
  // overhead.
  virtual std::function<void(Stream)> work(Choice choice) = 0;
  virtual double sample(Choice choice);
  virtual double empty_seconds() const { return 0; }

  // Run the best plan once more, copy its outputs to the case's output tensors in our layout, and synchronise.
  virtual void answer() = 0;
};

// Make the baseline for a case. `pointers` holds device tensors, whose outputs belong to the baseline. Throws Failure
// naming the reason when the library refuses the problem.
using BaselineFactory = std::function<std::unique_ptr<Baseline>(const Case& c, const Pointers& pointers,
                                                                const Search& search, const Measure& measure)>;

// `rank`: an untuned user of the pass gets the heuristic plan of the library with the lowest rank.
bool register_baseline(const Pass& pass, const char* library, int rank, BaselineFactory factory);

// Replace all baselines of the pass by this one.
void replace_baselines(const Pass& pass, const std::string& name, BaselineFactory factory);

// Merge all libraries' baselines of the case into one. Throws Failure naming each library's reason if none has a plan.
std::unique_ptr<Baseline> make_baseline(const Case& c, const Pointers& pointers, const Search& search,
                                        const Measure& measure);

// Merge one or more baselines into one. `missing` says which other libraries have no plan, and why.
std::unique_ptr<Baseline> merged(std::vector<std::unique_ptr<Baseline>> baselines, std::string missing);

// Run the best plan on `tensors`, filled with the inputs of `run`, and compare its outputs with the reference of the
// inputs as the plan rounds them (takes()): a library without an fp32 bias is as right as a library with one.
Verdict judged(Baseline& baseline, const Case& c, DeviceTensors& tensors, const ReferenceRun& run);

}  // namespace ladder

#define LADDER_BASELINE(P, library, rank, factory)                                                                   \
  namespace {                                                                                                        \
  [[maybe_unused]] const bool LADDER_UNIQUE(ladder_baseline_) = ::ladder::register_baseline(::ladder::pass_of<P>(),  \
                                                                                            library, rank, factory); \
  }
