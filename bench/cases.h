// The cases that a command line asks for, and the ones that its defaults leave out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/registry.h"

namespace ladder {

// Words of --problem, --set and --dtype; empty where the flag was not given.
struct RequestedCases {
  std::vector<std::string> problems;  // lines
  std::string set;
  std::string dtype;  // "bf16", "bf16,fp16" or "all"
};

struct ChosenCases {
  std::vector<Case> cases;  // by problem
  std::string left_out;     // "fp32 (--dtype all), the 19 problems of unet (--set unet)"; empty for nothing
  bool one_dtype = false;   // chosen by default, so that a version without it is left out, not refused
};

// The cases of a pass for `versions`. Without --problem and --set: the set perf (unet in a layer without it) in one dtype,
// or on the emulator the set ci in every dtype. A problem that names no dtype stands for all of --dtype. Throws UsageError.
ChosenCases choose_cases(const Pass& pass, const std::vector<const Version*>& versions, const RequestedCases& requested,
                         backend::Kind kind = backend::kind());

// Small problems that nobody chose: of those that the pass draws from the seed, the first `count` that the version runs and
// whose inputs of that seed tell right from wrong, each in one of its dtypes; fewer where it runs hardly any.
std::vector<Case> random_cases(const Version& v, int count, std::uint64_t seed);

// "1,2" as {"1", "2"}; "1," has an empty second word.
std::vector<std::string> split_at_commas(const std::string& list);

std::string names_of(std::span<const Dtype> dtypes, const char* between);

}  // namespace ladder
