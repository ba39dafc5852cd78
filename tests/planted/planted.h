// Planted faults: for each of compute-sanitizer's tools one kernel that it must report, and a clean twin that it must
// not. A tool that stays silent on its fault proves nothing by staying silent on a version.
#pragma once

#include <string>
#include <vector>

namespace ladder::planted {

struct Fault {
  std::string tool;  // "memcheck"; the kernel is planted_<tool>_kernel
  // Launches the faulty kernel or its twin and waits for it. True if the twin computed what it should; what the faulty
  // one computes is of no interest. Throws Failure if the device faulted.
  bool (*run)(bool faulty);
};

const std::vector<Fault>& all();

}  // namespace ladder::planted
