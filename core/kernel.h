// The life of a kernel in three steps: planned once, bound once, launched often.
//
//     Kernel kernel = plan(version, problem);                // fixes tiles and sizes; knows no addresses, no stream
//     BoundLaunch launch = kernel.bind(tensors, workspace);  // encodes tensor maps, queries the driver
//     launch(stream);                                        // only enqueues, so that a graph can capture it
//
// A version (VersionDef) defines either `launch` or `plans`. `launch` is for a version with nothing to prepare. `plans`
// is for one that chooses tiles, encodes tensor maps or queries the driver: it lists all plans of a problem, the
// default first. Harness and trainer run the default, tests run every plan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/stream.h"
#include "core/tensors.h"

namespace ladder {

struct Case;
struct Version;

// Enqueues a kernel, bound to its tensors, on a stream.
using BoundLaunch = std::function<void(Stream)>;

// One way to run one problem of pass P, with P's own Tensors: an element of a version's `plans`.
template <class P>
struct KernelPlan {
  const char* name = "";            // one of the version's plan_names, such as the tile "8x16"
  std::size_t workspace_bytes = 0;  // device memory that the launch needs besides the tensors, 256-byte aligned
  std::function<BoundLaunch(const typename P::Tensors& tensors, void* workspace)> bind;
};

// `plans` with the one at `chosen` first, the others in their order.
template <class P>
std::vector<KernelPlan<P>> with_default(std::vector<KernelPlan<P>> plans, std::size_t chosen) {
  const auto chosen_plan = plans.begin() + static_cast<std::ptrdiff_t>(chosen);
  std::rotate(plans.begin(), chosen_plan, chosen_plan + 1);
  return plans;
}

// A plan without the pass's types: tensors are found by name.
struct Kernel {
  std::string name;  // empty for a version that has nothing to choose
  std::size_t workspace_bytes = 0;
  // True if no other kernel may use the workspace while this one is in use: the workspace holds ready flags, which each
  // launch must leave as it found them.
  bool private_workspace = false;
  std::function<BoundLaunch(const Pointers& tensors, void* workspace)> bind;
};

// plans() returns all plans of the case on this device, the default first; never empty. plan() returns the one of that
// name. Both throw UsageError with the reason if the version does not support the case; plan() also for an unknown
// name.
std::vector<Kernel> plans(const Version& version, const Case& c);
Kernel plan(const Version& version, const Case& c, std::string_view name = {});  // no name: the default

}  // namespace ladder
