// Baselines: what a kernel has to beat. A pass has one for each library that knows it, registered by
// reference/<layer>_<library>.cpp or, of PyTorch, by reference/pytorch/<layer>.py; the harness sees them as one, whose best plan is the fastest of all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/check/check.h"
#include "core/registry.h"

namespace ladder {

struct Plan {
  std::string library = {};  // "cuDNN": as its baseline was registered
  std::string name = {};     // the library's own name of the plan or engine with its knobs, and the layout it works in
  double seconds = 0;        // as `measure` returned it; 0 for a plan that was not timed
  std::string reason = {};   // why it was not: the library's message, or the workspace it asked for
};

// Seconds one call of `work` takes on the device, cold; how plans are ranked.
using Measure = std::function<double(const std::function<void(Stream)>& work)>;

// The median of a few of a plan's samples, in seconds; a plan that is hopelessly slow is sampled once.
double typical_seconds(const std::function<double()>& sample);

class Baseline;

// How far to look for the library's best plan.
struct Search {
  enum Extent : std::uint8_t {
    all,        // every engine, and every configuration that the heuristics know
    listed,     // the configurations that the heuristics know: a fraction of the time
    heuristic,  // only the heuristic's first choice: what an untuned user gets
    none,       // no baseline at all: for tools that would look into the library's kernels, too
  };
  Search(Extent extent = all) : extent(extent) {}  // NOLINT(google-explicit-constructor): an extent is a whole search

  Extent extent;
  // The name of the plan that an earlier full search found best with this release of a library, "cuDNN 9.19.0"; empty for
  // none. A baseline that gets a name runs this plan and the heuristic's choice, no others.
  std::function<std::string(const std::string& library)> kept_plan = [](const std::string&) { return std::string(); };
  std::function<void(const Baseline&)> keep = {};  // takes each library's baseline after a full search; may be empty
};

// The search that a baseline's best plan comes from, the weakest first.
enum class Searched : std::uint8_t {
  heuristic,
  listed,
  kept,  // a full search of an earlier run
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
  virtual const std::vector<Plan>& tried() const = 0;           // every plan, the failed ones too
  virtual const Plan& plan(Choice choice) const = 0;            // one of them
  virtual Searched searched() const { return Searched::all; }   // of several libraries the weakest
  virtual std::size_t workspace_bytes() const = 0;              // of the best
  virtual bool makes(const TensorSpec&) const { return true; }  // whether its best plan has this output
  virtual Dtype takes(const TensorSpec& input) const {
    return input.dtype;
  }  // to which its best plan rounds this input

  // What enqueues exactly that plan on a stream. Empty for a plan that runs in a process of its own, which has its own
  // timer: sample() then takes one cold sample there, in seconds, empty_seconds() of which are the timer's.
  virtual std::function<void(Stream)> work(Choice choice) = 0;
  virtual double sample(Choice choice);
  virtual double empty_seconds() const { return 0; }

  // Runs the best plan once more and brings what it makes into the case's output tensors, in our layout; waits.
  virtual void answer() = 0;
};

// Makes the baseline for a case. `at` are device tensors, the outputs its own. Throws
// Failure naming the reason when the library refuses the problem.
using BaselineFactory = std::function<std::unique_ptr<Baseline>(const Case& c, const Pointers& at, const Search& search,
                                                                const Measure& measure)>;

// `rank`: the heuristic plan of the library with the least is what an untuned user of the pass gets.
bool register_baseline(const Pass& pass, const char* library, int rank, BaselineFactory factory);

// From now on the pass has this baseline alone.
void replace_baselines(const Pass& pass, const std::string& name, BaselineFactory factory);

// All libraries' baselines of the case as one. Throws Failure naming the reason of each where none has a plan.
std::unique_ptr<Baseline> make_baseline(const Case& c, const Pointers& at, const Search& search,
                                        const Measure& measure);

// Several baselines, at least one, as one. `missing` says which others have no plan, and why.
std::unique_ptr<Baseline> merged(std::vector<std::unique_ptr<Baseline>> baselines, std::string missing);

// Runs the best plan on `tensors`, filled with the inputs of `run`, and compares what it makes with the formula's values for
// the inputs as it takes them: a library that knows no fp32 bias is as right as one that does.
Verdict judged(Baseline& baseline, const Case& c, DeviceTensors& tensors, const ReferenceRun& run);

}  // namespace ladder

#define LADDER_BASELINE(P, library, rank, factory)                                                                   \
  namespace {                                                                                                        \
  [[maybe_unused]] const bool LADDER_UNIQUE(ladder_baseline_) = ::ladder::register_baseline(::ladder::pass_of<P>(),  \
                                                                                            library, rank, factory); \
  }
