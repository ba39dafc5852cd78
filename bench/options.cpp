#include "bench/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>
#include <random>

#include "bench/record.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/problem_line.h"
#include "core/shapes.h"

namespace ladder {
namespace {

constexpr const char* kExamples = R"(
Examples (on a GPU; without one everything is checked on the emulator and nothing is timed):
  {0} --list                                     what there is to run
  {0} --version 7                                check and time one version on the U-Net's shapes
  {0} --version all --set perf --dtype bf16      climb the ladder
  {0} --version 7 --problem 'n1 h8 w8 c16 k16 bf16' --check
  {0} --version best --record results/mine.json  the fastest recorded version, results kept
  ncu --nvtx --nvtx-include 'regex:conv3x3.*/' {0} --version 7 --set perf --once
Google Benchmark's own flags (--benchmark_filter, --benchmark_repetitions, --benchmark_out=FILE, ...) work as well.)";

struct Words {
  std::string version = "all";
  std::string pass;
  std::vector<std::string> problems;
  std::string set;
  std::string dtype;
  std::string device;
  bool check = false;
  bool time = false;
  bool unchecked = false;
  bool once = false;
  bool list = false;
  bool environment = false;
  std::optional<std::uint64_t> seed;
  std::string schedule;
  std::string record;
  bool resume = false;
  int samples = 30;
  std::optional<double> injected_slowdown_percent;
  std::string baseline = "all";
  std::string results;
};

const char* backend_name() { return backend::kind() == backend::Kind::gpu ? "gpu" : "emulator"; }

void require_device(const Words& words) {
  if (!words.device.empty() && words.device != "gpu" && words.device != "emulator") {
    throw UsageError("unknown device '" + words.device + "': gpu or emulator");
  }
  if (!words.device.empty() && words.device != backend_name()) {
    throw UsageError(fmt::format("--device {}: this build runs on the {}; configure the other with `cmake --preset {}`",
                                 words.device, backend_name(), words.device == "gpu" ? "cuda" : "emulator"));
  }
}

Mode mode_of(const Words& words) {
  if (words.check + words.time + words.unchecked + words.once > 1) {
    throw UsageError("--check, --time, --unchecked and --once exclude each other");
  }
  const bool gpu = backend::kind() == backend::Kind::gpu;
  if (words.time && !gpu) throw UsageError("--time: times come from a GPU only; --check works on the emulator");
  if (words.once) return Mode::once;
  if (words.unchecked) return Mode::unchecked;
  return words.check || !gpu ? Mode::check : Mode::check_and_time;
}

std::optional<Dtype> dtype_option(const Words& words) {
  if (words.dtype.empty()) return {};
  const std::optional<Dtype> dtype = parse_dtype(words.dtype);
  if (!dtype) {
    std::vector<std::string> names;
    for (const Dtype d : kProblemDtypes) names.push_back(name(d));
    throw UsageError(fmt::format("unknown dtype '{}': {}", words.dtype, fmt::join(names, ", ")));
  }
  return dtype;
}

constexpr std::pair<const char*, Search> kSearches[] = {
    {"all", Search::all}, {"listed", Search::listed}, {"heuristic", Search::heuristic}, {"none", Search::none}};

Search search_option(const Words& words) {
  for (const auto& [word, search] : kSearches) {
    if (words.baseline == word) return search;
  }
  throw UsageError("unknown --baseline '" + words.baseline + "': all, listed, heuristic or none");
}

std::vector<const Version*> versions_option(const Words& words, const Pass& pass) {
  if (words.version == "all" || words.version == "best") return versions_of(pass);
  std::vector<const Version*> versions;
  for (const std::string& word : CLI::detail::split(words.version, ',')) {
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw UsageError(fmt::format("--version '{}': a number, all or best", words.version));
    }
    versions.push_back(&find_version(pass, number));
  }
  return versions;
}

// Problems as they were given; which of them name a dtype, each says.
std::vector<Case> problems_option(const Words& words, const Pass& pass) {
  std::vector<Case> problems;
  if (!words.problems.empty()) {
    if (!words.set.empty()) throw UsageError("--problem and --set exclude each other");
    for (const std::string& line : words.problems) problems.push_back(pass.parse(line));
    return problems;
  }
  std::string set = words.set;
  if (set.empty()) set = backend::kind() == backend::Kind::gpu ? "unet" : "ci";
  for (NamedCase& named : named_cases(pass, set)) problems.push_back(std::move(named.problem));
  return problems;
}

// A problem that names no dtype stands for all, one that does for that one.
std::vector<Case> cases_of(const std::vector<Case>& problems, std::optional<Dtype> dtype) {
  std::vector<Case> cases;
  for (const Case& problem : problems) {
    if (problem.names_dtype) {
      if (dtype && problem.dtype != *dtype) {
        throw UsageError(fmt::format("--dtype {} contradicts the problem '{}'", name(*dtype), problem.text));
      }
      cases.push_back(problem);
    } else if (dtype) {
      cases.push_back(problem.with_dtype(*dtype));
    } else {
      for (const Dtype each : kProblemDtypes) cases.push_back(problem.with_dtype(each));
    }
  }
  return cases;
}

// The version that recorded the fastest passing time, else the highest number that can.
const Version* best_version(const std::vector<const Version*>& versions, const Case& c, const std::string& results,
                            std::vector<std::string>& notes) {
  const int recorded = backend::unavailable() ? 0 : fastest_recorded(results, c);
  for (const Version* v : versions) {
    if (v->number == recorded) return v;
  }
  const Version* highest = nullptr;
  for (const Version* v : versions) {
    if (v->has(c.dtype) && !v->supports(v->def, c)) highest = v;
  }
  if (highest) {
    notes.push_back(fmt::format("best: no recorded time of '{}' on this device, so {}, the highest that supports it",
                                c.text, highest->label()));
  }
  return highest;
}

std::vector<Job> jobs_of(const Words& words, const Pass& pass, std::vector<std::string>& notes) {
  const std::vector<const Version*> versions = versions_option(words, pass);
  const std::optional<Dtype> dtype = dtype_option(words);
  const std::vector<Case> problems = problems_option(words, pass);
  const std::vector<Case> cases = cases_of(problems, dtype);
  const bool named = words.version != "all" && words.version != "best";

  std::vector<Job> jobs;
  for (const Case& c : cases) {
    if (words.version == "best") {
      if (const Version* best = best_version(versions, c, words.results, notes)) jobs.push_back({best, c});
      continue;
    }
    for (const Version* v : versions) {
      if (v->has(c.dtype)) {
        jobs.push_back({v, c});
      } else if (named && (dtype || problems.size() == cases.size())) {
        // Asked for by name, so it is not quietly left out.
        std::vector<std::string> has;
        for (const Dtype d : v->def.dtypes) has.push_back(name(d));
        throw UsageError(fmt::format("{} has no {}: it has {}", v->label(), name(c.dtype), fmt::join(has, ", ")));
      }
    }
  }
  if (jobs.empty()) throw UsageError("nothing matched: no version of " + pass.path() + " has what was asked for");
  return jobs;
}

void add_options(CLI::App& app, Words& words) {
  app.add_option("--version", words.version, "a number (or several: 6,7), all, or best: the fastest recorded one")
      ->capture_default_str();
  app.add_option("--pass", words.pass, "which pass of the layer")->capture_default_str();
  app.add_option("--problem", words.problems, "a problem line; may be repeated")->take_all();
  app.add_option("--set", words.set, "a set of problems: unet, edge, ci, perf (default: unet; ci on the emulator)");
  app.add_option("--dtype", words.dtype, "fp32, tf32, bf16 or fp16 (default: all that the version has)");
  app.add_option("--device", words.device, "gpu or emulator; a build has one of them");
  app.add_flag("--check", words.check, "check only");
  app.add_flag("--time", words.time, "check and time: the default on a GPU");
  app.add_flag("--unchecked", words.unchecked,
               "cold samples and a digest of the output, without reference or baseline: for comparing two builds");
  app.add_option("--inject-slowdown", words.injected_slowdown_percent,
                 "with --unchecked: a kernel behind each sample's own spins for so many percent of it, to show what a "
                 "comparison can see")
      ->check(CLI::Range(0.0, 1000.0));
  app.add_flag("--once", words.once, "exactly one launch, in an NVTX range, for a profiler; not checked, not timed");
  app.add_flag("--list", words.list, "list the versions and leave");
  app.add_flag("--environment", words.environment, "print what a record would say of this machine and build");
  app.add_option("--seed", words.seed, "of the inputs (default: another one every run)");
  app.add_option("--schedule", words.schedule,
                 "in which order the emulator runs threads: asc, desc, random:7, greedy:7");
  app.add_option("--record", words.record, "write everything measured to this JSON file (results/SCHEMA.md)");
  app.add_flag("--resume", words.resume, "go on with the --record that was interrupted");
  app.add_option("--samples", words.samples, "cold samples a version")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--baseline", words.baseline,
                 "how far to look for the library's best plan: all, listed (by its heuristics), heuristic (its first "
                 "choice), none")
      ->capture_default_str();
  app.add_option("--results", words.results, "where --version best looks for records")->capture_default_str();
}

std::string base_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

std::string quoted(const std::string& word) { return word.find(' ') == std::string::npos ? word : "'" + word + "'"; }

}  // namespace

std::string Job::name() const { return fmt::format("{}/{}/{}", version->pass->path(), version->label(), problem.text); }

std::optional<Options> parse_options(const std::string& layer, int argc, char** argv) {
  Options options;
  // Google Benchmark knows its flags by their prefix; the rest is ours.
  std::vector<std::string> ours;
  options.benchmark_arguments.push_back(argv[0]);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    (word.starts_with("--benchmark_") || word.starts_with("--v=") ? options.benchmark_arguments : ours).push_back(word);
  }

  Words words;
  words.pass = default_pass(layer).name;
  words.results = source_dir() + "/results";
  CLI::App app(fmt::format("Checks and times the versions of {} against the reference and the baseline.", layer),
               base_name(argv[0]));
  app.footer(fmt::format(fmt::runtime(kExamples), base_name(argv[0])));
  add_options(app, words);
  std::reverse(ours.begin(), ours.end());  // as CLI11 wants them
  try {
    app.parse(ours);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + " (--help shows what there is)");
  }

  options.pass = &find_pass(layer, words.pass);
  options.list = words.list;
  options.environment = words.environment;
  if (options.list || options.environment) return options;
  options.baseline_search = words.unchecked ? Search::none : search_option(words);
  require_device(words);
  options.mode = mode_of(words);
  options.jobs = jobs_of(words, *options.pass, options.notes);
  if (const char* reason = backend::unavailable()) {
    throw UsageError(fmt::format("{}; the emulator needs none: configure with `cmake --preset emulator`", reason));
  }
  options.seed = words.seed.value_or(std::random_device{}());
  options.schedule = words.schedule;
  options.record = words.record;
  options.resume = words.resume;
  if (options.resume && options.record.empty()) throw UsageError("--resume needs the --record FILE to go on with");
  options.samples = words.samples;
  if (words.injected_slowdown_percent) {
    if (!words.unchecked) throw UsageError("--inject-slowdown makes no figure: it needs --unchecked");
    options.injected_slowdown = *words.injected_slowdown_percent / 100;
  }
  if (!options.schedule.empty()) backend::set_schedule(options.schedule);
  return options;
}

std::string command_of(const std::string& program, const Job& job, const Options& options) {
  std::string command = fmt::format("{} --version {} --problem '{}' --seed {}", quoted(program), job.version->number,
                                    job.problem.text, options.seed);
  if (!job.version->pass->is_default)
    command += " --pass " + job.version->pass->name;
  if (!options.schedule.empty()) command += " --schedule " + options.schedule;
  if (options.mode == Mode::check) command += " --check";
  if (options.mode == Mode::unchecked) command += " --unchecked";
  if (options.mode == Mode::check_and_time || options.mode == Mode::unchecked) {
    command += fmt::format(" --samples {}", options.samples);
  }
  for (const auto& [word, search] : kSearches) {
    if (options.mode != Mode::unchecked && search == options.baseline_search && search != Search::all)
      command += fmt::format(" --baseline {}", word);
  }
  return command;
}

std::string list_of(const Pass& pass) {
  std::string text = fmt::format("{:<28} {:<18} {}\n", "version", "dtypes", "needs");
  for (const Version* v : versions_of(pass)) {
    std::vector<std::string> dtypes;
    for (const Dtype d : v->def.dtypes) dtypes.push_back(name(d));
    std::string needs = v->def.needs;
    if (v->def.min_arch > 0) {
      needs += fmt::format("{}sm_{}{}", needs.empty() ? "" : "; ", v->def.min_arch, v->def.arch_specific ? "a" : " or later");
    }
    text += fmt::format("{:<28} {:<18} {}\n", v->label(), fmt::format("{}", fmt::join(dtypes, " ")), needs);
  }
  return text;
}

}  // namespace ladder
