#include "bench/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iostream>
#include <random>

#include "core/backend.h"
#include "core/error.h"
#include "core/problem_line.h"
#include "core/shapes.h"
#include "runtime/promoted.h"

namespace ladder {
namespace {

constexpr const char* kExamples = R"(
Examples (on a GPU; without one everything is checked on the emulator and nothing is timed):
  {0} --list                                     what there is to run
  {0} --version 7                                check and time one version on the U-Net's shapes
  {0} --version all --set perf --dtype bf16      climb the ladder
  {0} --version 5-7 --problem square --check     some versions, a problem of shapes.txt
  {0} --version best --record results/mine.json  the version that the trainer takes, results kept
  ncu --nvtx --nvtx-include 'regex:{1}.*/' {0} --version 7 --set perf --once
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
  std::string seed;
  std::string schedule;
  std::string record;
  bool resume = false;
  int samples = 30;
  std::optional<double> injected_slowdown_percent;
  std::string baseline = "all";
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

// Of a list, empty words too: "1," has two.
std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words(1);
  for (const char c : list) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

// Those that were asked for; none for all.
std::vector<Dtype> dtype_option(const Words& words) {
  std::vector<Dtype> dtypes;
  if (words.dtype.empty()) return dtypes;
  for (const std::string& word : words_of(words.dtype)) {
    const std::optional<Dtype> dtype = parse_dtype(word);
    if (!dtype) {
      std::vector<std::string> names;
      for (const Dtype d : kProblemDtypes) names.push_back(name(d));
      throw UsageError(fmt::format("unknown dtype '{}': {}", word, fmt::join(names, ", ")));
    }
    if (std::find(dtypes.begin(), dtypes.end(), *dtype) == dtypes.end()) dtypes.push_back(*dtype);
  }
  return dtypes;
}

std::uint64_t seed_option(const Words& words) {
  if (words.seed.empty()) return std::random_device{}();
  const std::optional<std::uint64_t> seed = parse_number<std::uint64_t>(words.seed);
  if (!seed) throw UsageError(fmt::format("--seed '{}': a whole number from 0 to 2^64 - 1", words.seed));
  return *seed;
}

constexpr std::pair<const char*, Search> kSearches[] = {
    {"all", Search::all}, {"listed", Search::listed}, {"heuristic", Search::heuristic}, {"none", Search::none}};

Search search_option(const Words& words) {
  for (const auto& [word, search] : kSearches) {
    if (words.baseline == word) return search;
  }
  throw UsageError("unknown --baseline '" + words.baseline + "': all, listed, heuristic or none");
}

// Of "7" and "v07".
std::optional<int> version_number(std::string_view word) {
  if (word.starts_with('v') || word.starts_with('V')) word.remove_prefix(1);
  const std::optional<int> number = parse_number<int>(word);
  return number && *number >= 0 ? number : std::nullopt;
}

// Whether the versions are named one by one, so that one that cannot do a problem is not quietly left out.
bool names_each(const Words& words) {
  const std::vector<std::string> all = words_of(words.version);
  return std::all_of(all.begin(), all.end(), [](const std::string& word) {
    return version_number(word.substr(0, word.find('_'))).has_value();
  });
}

// A number, "v07", "v07_wmma", "5-9" or a word of the idea; tools/registry/selection.py reads the same forms.
bool means(const std::string& word, const Version& v) {
  if (const auto number = version_number(word)) return v.number == *number;
  if (const auto dash = word.find('-'); dash != std::string::npos) {
    const auto low = version_number(word.substr(0, dash));
    const auto high = version_number(word.substr(dash + 1));
    if (low && high) return *low <= v.number && v.number <= *high;
  }
  if (word == v.label()) return true;
  std::string wanted = "_" + word + "_";
  std::replace_if(
      wanted.begin(), wanted.end(), [](char c) { return c == '-' || c == ' '; }, '_');
  return !word.empty() && ("_" + v.idea + "_").find(wanted) != std::string::npos;
}

std::vector<const Version*> versions_option(const Words& words, const Pass& pass) {
  const std::vector<const Version*> all = versions_of(pass);
  if (words.version == "all") return all;
  if (words.version == "best") return {};
  std::vector<const Version*> chosen;
  for (const std::string& word : words_of(words.version)) {
    bool found = false;
    for (const Version* v : all) {
      if (!means(word, *v)) continue;
      found = true;
      if (std::find(chosen.begin(), chosen.end(), v) == chosen.end()) chosen.push_back(v);
    }
    if (found) continue;
    std::vector<std::string> labels;
    labels.reserve(all.size());
    for (const Version* v : all) labels.push_back(v->label());
    throw UsageError(fmt::format("--version '{}': a number, v07, 5-9, a word of the idea, all or best; {} has: {}",
                                 word, pass.path(), fmt::join(labels, ", ")));
  }
  std::sort(chosen.begin(), chosen.end(), [](const Version* a, const Version* b) { return a->number < b->number; });
  return chosen;
}

// The line that --problem means: a line, or a case's name, which may say its set ("edge/square").
std::string problem_line(const std::string& text, const Pass& pass) {
  if (text.find(' ') != std::string::npos) return text;
  const auto slash = text.find('/');
  const std::string set = slash == std::string::npos ? "" : text.substr(0, slash);
  const std::string name = text.substr(slash == std::string::npos ? 0 : slash + 1);
  std::vector<std::string> lines;
  std::vector<std::string> names;
  for (const ShapeSet& s : shape_sets(pass.layer)) {
    for (const auto& named : s.lines) {
      if (named.name != name || (!set.empty() && set != s.name)) continue;
      if (std::find(lines.begin(), lines.end(), named.problem) != lines.end()) continue;
      lines.push_back(named.problem);
      names.push_back(s.name + "/" + named.name);
    }
  }
  if (lines.size() == 1) return lines[0];
  if (!lines.empty()) throw UsageError(fmt::format("--problem '{}' is several: {}", text, fmt::join(names, ", ")));
  try {
    pass.parse(text);
    return text;
  } catch (const UsageError& error) {
    throw UsageError(
        fmt::format("--problem '{}': no name in dev/{}/shapes.txt, and no line: {}", text, pass.layer, error.what()));
  }
}

// Problems as they were given; which of them name a dtype, each says.
std::vector<Case> problems_option(const Words& words, const Pass& pass) {
  std::vector<Case> problems;
  if (!words.problems.empty()) {
    if (!words.set.empty()) throw UsageError("--problem and --set exclude each other");
    for (const std::string& text : words.problems) problems.push_back(pass.parse(problem_line(text, pass)));
    return problems;
  }
  std::string set = words.set;
  if (set.empty()) set = backend::kind() == backend::Kind::gpu ? "unet" : "ci";
  for (NamedCase& named : named_cases(pass, set)) problems.push_back(std::move(named.problem));
  return problems;
}

// A problem that names no dtype stands for all of them, one that does for that one.
std::vector<Case> cases_of(const std::vector<Case>& problems, const std::vector<Dtype>& dtypes) {
  const auto wanted = [&](Dtype dtype) {
    return dtypes.empty() || std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
  };
  std::vector<Case> cases;
  for (const Case& problem : problems) {
    if (problem.names_dtype) {
      if (!wanted(problem.dtype)) {
        std::vector<std::string> names;
        names.reserve(dtypes.size());
        for (const Dtype dtype : dtypes) names.push_back(name(dtype));
        throw UsageError(fmt::format("--dtype {} contradicts the problem '{}'", fmt::join(names, ","), problem.text));
      }
      cases.push_back(problem);
      continue;
    }
    for (const Dtype each : kProblemDtypes) {
      if (wanted(each)) cases.push_back(problem.with_dtype(each));
    }
  }
  return cases;
}

void require_backend() {
  if (const char* reason = backend::unavailable()) {
    throw UsageError(fmt::format("{}; the emulator needs none: configure with `cmake --preset emulator`", reason));
  }
}

// What the trainer runs for each case, and why.
std::vector<Job> best_jobs(const std::vector<Case>& cases, const Pass& pass, std::vector<std::string>& notes) {
  require_backend();
  const auto promotions = Promotions::for_device(backend::device().slug, pass.layer);
  if (!promotions.note().empty()) notes.push_back("best: " + promotions.note());
  std::vector<Job> jobs;
  for (const Case& c : cases) {
    if (std::ranges::none_of(versions_of(pass), [&](const Version* v) { return v->has(c.dtype); })) continue;
    try {
      const VersionChoice best = promotions.choose(c);
      jobs.push_back({best.version, c});
      notes.push_back(fmt::format("best of '{}': {}, {}", c.text, best.version->label(), best.reason));
    } catch (const Failure& none) {
      notes.push_back(fmt::format("best: {}", none.what()));
    }
  }
  return jobs;
}

std::vector<Job> jobs_of(const Words& words, const Pass& pass, std::vector<std::string>& notes) {
  const std::vector<const Version*> versions = versions_option(words, pass);
  const std::vector<Dtype> dtypes = dtype_option(words);
  const std::vector<Case> problems = problems_option(words, pass);
  const std::vector<Case> cases = cases_of(problems, dtypes);
  const bool named = names_each(words);

  std::vector<Job> jobs;
  if (words.version == "best") jobs = best_jobs(cases, pass, notes);
  for (const Case& c : cases) {
    for (const Version* v : versions) {
      if (v->has(c.dtype)) {
        jobs.push_back({v, c});
      } else if (named && (!dtypes.empty() || problems.size() == cases.size()) &&
                 std::none_of(dtypes.begin(), dtypes.end(), [&](Dtype d) { return v->has(d); })) {
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
  const CLI::Validator filled([](const std::string& word) { return std::string(word.empty() ? "it is empty" : ""); },
                              "");
  app.add_option("--version", words.version,
                 "7, v07, 5-9, 7,9, a word of the idea (wmma), all, or best: the promoted one, as in training")
      ->capture_default_str()
      ->check(filled);
  app.add_option("--pass", words.pass, "which pass of the layer")->capture_default_str();
  app.add_option("--problem", words.problems, "a problem line, or a name from shapes.txt; may be repeated")->take_all();
  app.add_option("--set", words.set,
                 "a set of shapes.txt, such as unet, edge, ci, perf (default: unet; ci on the emulator)")
      ->check(filled);
  app.add_option("--dtype", words.dtype, "of fp32, tf32, bf16, fp16, with commas between (default: all that there are)")
      ->check(filled);
  app.add_option("--device", words.device, "gpu or emulator; a build has one of them")->check(filled);
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
  app.add_option("--seed", words.seed, "of the inputs (default: another one every run)")->check(filled);
  app.add_option("--schedule", words.schedule,
                 "in which order the emulator runs threads: asc, desc, random:7, greedy:7")
      ->check(filled);
  app.add_option("--record", words.record, "write everything measured to this JSON file (results/SCHEMA.md)");
  app.add_flag("--resume", words.resume, "go on with the --record that was interrupted");
  app.add_option("--samples", words.samples, "cold samples a version")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  app.add_option("--baseline", words.baseline,
                 "how far to look for the library's best plan: all, listed (by its heuristics), heuristic (its first "
                 "choice), none")
      ->capture_default_str();
}

// Google Benchmark ends with its usage and status 0 over these.
void require_known_format(const std::string& word) {
  for (const char* flag : {"--benchmark_format", "--benchmark_out_format"}) {
    if (word != flag && !word.starts_with(std::string(flag) + "=")) continue;
    const std::string value = word.substr(std::min(word.find('='), word.size() - 1) + 1);
    if (value != "console" && value != "json" && value != "csv") {
      throw UsageError(fmt::format("{}={}: console, json or csv", flag, value));
    }
  }
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
    require_known_format(word);
    (word.starts_with("--benchmark_") || word.starts_with("--v=") ? options.benchmark_arguments : ours).push_back(word);
  }

  Words words;
  words.pass = default_pass(layer).name;
  CLI::App app(fmt::format("Checks and times the versions of {} against the reference and the baseline.", layer),
               base_name(argv[0]));
  app.footer(fmt::format(fmt::runtime(kExamples), base_name(argv[0]), layer));
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
  require_backend();
  options.seed = seed_option(words);
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
  if (!job.version->pass->is_default) command += " --pass " + job.version->pass->name;
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
      needs += fmt::format("{}sm_{}{}", needs.empty() ? "" : "; ", v->def.min_arch,
                           v->def.arch_specific ? "a" : " or later");
    }
    text += fmt::format("{:<28} {:<18} {}\n", v->label(), fmt::format("{}", fmt::join(dtypes, " ")), needs);
  }
  return text;
}

}  // namespace ladder
