// The command line of a bench program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/kept_plans.h"
#include "core/registry.h"

namespace ladder {

enum class Mode {
  check_and_time,
  check,      // no times
  unchecked,  // times and digests of outputs that nobody checks; no baseline
  once,       // one launch for a profiler, neither checked nor timed
};

// A row of the table: a version on a problem with its dtype.
struct Job {
  const Version* version = nullptr;
  Case problem;
  std::string name() const;  // "conv3x3/fprop/v07_wmma_cp_async/n32 h64 w64 c64 k64 bf16"
};

struct Options {
  const Pass* pass = nullptr;
  Mode mode = Mode::check;
  bool list = false;
  bool environment = false;        // print the environment and exit
  std::vector<Job> jobs;           // by problem: versions share the reference's and the baseline's work
  std::vector<std::string> notes;  // decisions made for the user, a line each
  std::uint64_t seed = 0;
  std::string schedule;  // of the emulator; empty for its default
  std::string record;    // file; empty for none
  bool resume = false;   // continue an interrupted recording
  int samples = 30;
  std::optional<double> injected_slowdown;  // share by which unchecked samples are made longer
  BaselineSearch baseline_search;
  std::string baseline = "kept";                 // the word of --baseline: baseline_search, or a Python file
  std::vector<std::string> benchmark_arguments;  // Google Benchmark's, argv[0] first
};

// Parse the command line. Returns nothing if help was asked for, which is then printed. Throws UsageError.
std::optional<Options> parse_options(const std::string& layer, int argc, char** argv);

// The command that runs exactly this job again.
std::string command_of(const std::string& program, const Job& job, const Options& options);

// Flags of `./ladder bench`, besides version and problem, that reproduce the verdict: " --seed 3 --check".
std::string repeating_flags(const Options& options);

// Text of --list.
std::string list_of(const Pass& pass);

}  // namespace ladder
