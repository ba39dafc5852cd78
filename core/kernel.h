// A kernel in three steps: planned once, bound once, launched often.
//
//     Kernel kernel = plan(version, problem);              // tiles chosen, sizes known: no addresses, no stream
//     BoundLaunch launch = kernel.bind(tensors, workspace);  // tensor maps encoded, the driver asked
//     launch(stream);                                      // enqueues and does nothing else, so it can be captured
//
// A version with nothing to prepare gives a plain `launch`; one that chooses between tiles, encodes tensor maps or asks
// the driver gives `plans`, which lists every choice for a problem, the default first. Harness and trainer take the
// default, tests run every one.
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

// One way to run one problem of pass P, as a version file lists it.
template <class P>
struct KernelPlan {
  const char* name = "";            // of the tiles: one of the version's plan_names
  std::size_t workspace_bytes = 0;  // device memory that the launch needs besides the tensors, 256-byte aligned
  std::function<BoundLaunch(const typename P::Tensors& tensors, void* workspace)> bind;
};

// `plans` with the one at `chosen` first, the others in their order.
template <class P>
std::vector<KernelPlan<P>> with_default(std::vector<KernelPlan<P>> plans, std::size_t chosen) {
  const auto at = plans.begin() + static_cast<std::ptrdiff_t>(chosen);
  std::rotate(plans.begin(), at, at + 1);
  return plans;
}

// The same for any pass.
struct Kernel {
  std::string name;  // empty for a version that has nothing to choose
  std::size_t workspace_bytes = 0;
  // The workspace holds ready flags from one launch to the next: it must be this kernel's alone for as long as it is
  // used.
  bool private_workspace = false;
  std::function<BoundLaunch(const Pointers& tensors, void* workspace)> bind;
};

// All ways of the version to run the case on this device, the default first; never empty. Throw UsageError with the
// reason where the version does not support the case, or has no plan of that name for it.
std::vector<Kernel> plans(const Version& version, const Case& c);
Kernel plan(const Version& version, const Case& c, std::string_view name = {});  // no name: the default

}  // namespace ladder
