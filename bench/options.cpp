#include "bench/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <random>

#include "bench/cases.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/shapes.h"
#include "io/flags.h"
#include "runtime/promoted.h"

namespace ladder {
namespace {

constexpr const char* kExamples = R"(
Examples (on a GPU; without one everything is checked on the emulator and nothing is timed):
  {0} --list                                     what there is to run
  {0} --version 7                                check and time one version on the shapes of perf
  {0} --set unet --dtype bf16                    every version on the U-Net's shapes
  {0} --version 5,6,7 --problem '{2}' --check
  {0} --promoted --record results/mine.json      the versions that the trainer takes, results kept
  ncu --nvtx --nvtx-include 'regex:{1}.*/' {0} --version 7 --set perf --once
./ladder bench {1} takes words as well: --version wmma, 5-9 or best, --problem with a name of dev/{1}/shapes.txt.
Google Benchmark's own flags (--benchmark_filter, --benchmark_repetitions, --benchmark_out=FILE, ...) work as well.)";

struct Words {
  std::string version = "all";
  bool promoted = false;
  std::string pass;
  std::vector<std::string> problems;
  std::string set;
  std::string dtype;
  int random = 0;
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
  std::string baseline = "kept";
};

const char* backend_name() { return backend::kind() == backend::Kind::gpu ? "gpu" : "emulator"; }

void require_device(const Words& words) {
  if (!words.device.empty() && words.device != backend_name()) {
    throw UsageError(fmt::format("--device {}: this build runs on the {}; configure the other with `cmake --preset {}`",
                                 words.device, backend_name(), words.device == "gpu" ? "cuda" : "emulator"));
  }
}

Mode mode_of(const Words& words) {
  const bool gpu = backend::kind() == backend::Kind::gpu;
  if (words.time && !gpu) throw UsageError("--time: times come from a GPU only; --check works on the emulator");
  if (words.once) return Mode::once;
  if (words.unchecked) return Mode::unchecked;
  return words.check || !gpu ? Mode::check : Mode::check_and_time;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

std::uint64_t seed_option(const Words& words) {
  if (words.seed.empty()) return std::random_device{}();
  const std::optional<std::uint64_t> seed = parse_number<std::uint64_t>(words.seed);
  if (!seed) throw UsageError(fmt::format("--seed '{}': a whole number from 0 to 2^64 - 1", words.seed));
  return *seed;
}

const std::map<std::string, BaselineSearch> kSearches = {{"kept", {.extent = Search::heuristic, .takes_kept = true}},
                                                         {"all", {.takes_kept = true, .keeps = true}},
                                                         {"search", {.keeps = true}},
                                                         {"listed", {.extent = Search::listed}},
                                                         {"heuristic", {.extent = Search::heuristic}},
                                                         {"none", {.extent = Search::none}}};

// Versions that --version selects: 7, or 5,6,9, or all.
std::vector<const Version*> versions_option(const Words& words, const Pass& pass) {
  if (words.version == "all") return versions_of(pass);
  std::vector<const Version*> chosen;
  for (const std::string& word : split_at_commas(words.version)) {
    const std::optional<int> number = parse_number<int>(word);
    if (!number) {
      throw UsageError(
          fmt::format("--version '{}': numbers, as in 7 or 5,6,9, or all; words are for "
                      "`./ladder bench {} --version {}`",
                      word, pass.layer, words.version));
    }
    const Version* v = &find_version(pass, *number);
    if (std::find(chosen.begin(), chosen.end(), v) == chosen.end()) chosen.push_back(v);
  }
  std::sort(chosen.begin(), chosen.end(), [](const Version* a, const Version* b) { return a->number < b->number; });
  return chosen;
}

void require_backend() {
  if (const char* reason = backend::unavailable()) {
    throw UsageError(fmt::format("{}; the emulator needs none: configure with `cmake --preset emulator`", reason));
  }
}

// Jobs of the promoted version of each case; `notes` receives the reasons. A case without a promoted version is left
// out with a note: the trainer takes the highest version then, which nobody has recorded. Throws UsageError if no case
// has one.
std::vector<Job> promoted_jobs(const std::vector<Case>& cases, const Pass& pass, std::vector<std::string>& notes) {
  require_backend();
  const auto promotions = Promotions::for_device(backend::device().slug);
  if (!promotions.note().empty()) notes.push_back("promoted: " + promotions.note());
  std::vector<Job> jobs;
  std::vector<std::string> lacking;
  for (const Case& c : cases) {
    if (std::ranges::none_of(versions_of(pass), [&](const Version* v) { return v->has(c.dtype); })) continue;
    if (!promotions.serves(c)) {
      lacking.push_back(fmt::format("{} has no promoted version for '{}'; --version N names one", pass.path(), c.text));
      continue;
    }
    const VersionChoice best = promotions.choose(c);
    jobs.push_back({best.version, c});
    notes.push_back(fmt::format("promoted for '{}': {}, {}", c.text, best.version->label(), best.reason));
  }
  if (jobs.empty() && !lacking.empty()) throw UsageError(lacking.front());
  notes.insert(notes.end(), lacking.begin(), lacking.end());
  return jobs;
}

std::vector<Job> jobs_of(const Words& words, const Pass& pass, std::uint64_t seed, std::vector<std::string>& notes) {
  const std::vector<const Version*> versions = versions_option(words, pass);
  const ChosenCases chosen = choose_cases(pass, versions, {words.problems, words.set, words.dtype});
  const std::vector<Case>& cases = chosen.cases;
  std::string left_out = chosen.left_out;
  std::vector<Job> jobs;
  if (words.promoted) {
    jobs = promoted_jobs(cases, pass, notes);
  } else {
    for (const Case& c : cases) {
      for (const Version* v : versions) {
        if (v->has(c.dtype)) jobs.push_back({v, c});
      }
    }
    // A version that was asked for by its number is not left out silently.
    for (const Version* v : versions) {
      if (words.version == "all" || std::ranges::any_of(jobs, [&](const Job& job) { return job.version == v; }))
        continue;
      if (chosen.one_dtype) {
        left_out += fmt::format(", {} in {} (--dtype all)", v->label(), names_of(v->def.dtypes, ", "));
        continue;
      }
      std::vector<Dtype> dtypes;
      for (const Case& c : cases) {
        if (std::ranges::find(dtypes, c.dtype) == dtypes.end()) dtypes.push_back(c.dtype);
      }
      throw UsageError(
          fmt::format("{} has no {}: it has {}", v->label(), names_of(dtypes, " or "), names_of(v->def.dtypes, ", ")));
    }
  }
  for (const Version* v : words.promoted ? std::vector<const Version*>() : versions) {
    for (Case& c : random_cases(*v, words.random, seed)) jobs.push_back({v, std::move(c)});
  }
  if (!left_out.empty()) notes.push_back("left out: " + left_out);
  if (jobs.empty()) throw UsageError("nothing matched: no version of " + pass.path() + " has what was asked for");
  return jobs;
}

void add_what(CLI::App& app, Words& words) {
  app.option_defaults()->group("what to run");
  CLI::Option* version = app.add_option("--version", words.version, "by number: 7, several as in 5,6,9, or all")
                             ->capture_default_str()
                             ->check(io::kFilled);
  app.add_flag("--promoted", words.promoted, "for each problem the version that the trainer takes")->excludes(version);
  app.add_option("--pass", words.pass, "which pass of the layer (default: its default)");
  CLI::Option* problem = app.add_option("--problem", words.problems, "a problem's line; may be repeated")->take_all();
  app.add_option("--set", words.set,
                 "a set of shapes.txt, such as unet, edge, ci, perf (default: perf, else unet; ci on the emulator)")
      ->excludes(problem)
      ->check(io::kFilled);
  app.add_option("--dtype", words.dtype,
                 "of fp32, tf32, bf16, fp16, with commas between, or all (default: all with --problem or --set and on "
                 "the emulator; else one, the first of bf16, fp16, tf32, fp32 that a version has)")
      ->check(io::kFilled);
  app.add_option("--random", words.random, "small problems besides, drawn from the seed for each version")
      ->capture_default_str()
      ->check(io::limits("[0, 1000]"));
}

void add_how(CLI::App& app, Words& words) {
  app.option_defaults()->group("how");
  app.add_option("--device", words.device, "gpu or emulator; a build has one of them")
      ->check(io::kFilled)
      ->check(io::words({"gpu", "emulator"}));
  CLI::Option* check = app.add_flag("--check", words.check, "check only");
  CLI::Option* time = app.add_flag("--time", words.time, "check and time: the default on a GPU")->excludes(check);
  CLI::Option* unchecked =
      app.add_flag("--unchecked", words.unchecked,
                   "cold samples and a digest of the output, without reference or baseline: for comparing two builds")
          ->excludes(check)
          ->excludes(time);
  app.add_flag("--once", words.once, "exactly one launch, in an NVTX range, for a profiler; not checked, not timed")
      ->excludes(check)
      ->excludes(time)
      ->excludes(unchecked);
  app.add_option(
         "--inject-slowdown", words.injected_slowdown_percent,
         "with --unchecked: after each sample's kernel another spins for this many percent of its time, to show what a "
         "comparison can see")
      ->needs(unchecked)
      ->check(io::limits("[0, 1000]"));
  app.add_flag("--list", words.list, "list the versions and leave");
  app.add_flag("--environment", words.environment, "print what a record would say of this machine and build");
  app.add_option("--seed", words.seed, "of the inputs (default: another one every run)")->check(io::kFilled);
  app.add_option("--schedule", words.schedule,
                 "in which order the emulator runs threads: asc, desc, random:7, greedy:7, late:7")
      ->check(io::kFilled)
      ->check(io::pattern("asc|desc|(random|greedy|late)(:[0-9]+)?"));
  CLI::Option* record =
      app.add_option("--record", words.record, "write everything measured to this JSON file (results/SCHEMA.md)")
          ->type_name("FILE");
  app.add_flag("--resume", words.resume, "go on with the --record that was interrupted")->needs(record);
  app.add_option("--samples", words.samples, "cold samples a version")
      ->capture_default_str()
      ->check(io::limits("[1, 100000]"));
  app.add_option(
         "--baseline", words.baseline,
         "the library's plan: kept (the best of an earlier search, else the heuristic's), all (searched and kept, "
         "unless one is), search (always anew), listed (by its heuristics), heuristic (its first choice), none; or "
         "FILE.py with functions of your own in PyTorch (reference/pytorch/own.py)")
      ->capture_default_str()
      ->check(io::pattern("kept|all|search|listed|heuristic|none|.+[.]py"));
}

// Flags for which Google Benchmark prints its usage and ends with status 0.
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
  // Separate Google Benchmark's flags, known by their prefix, from ours.
  std::vector<std::string> ours;
  options.benchmark_arguments.push_back(argv[0]);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    require_known_format(word);
    (word.starts_with("--benchmark_") || word.starts_with("--v=") ? options.benchmark_arguments : ours).push_back(word);
  }

  Words words;
  const std::string program = base_name(argv[0]);
  CLI::App app(fmt::format("Checks and times the versions of {} against the reference and the baseline.", layer),
               program);
  const std::vector<ShapeSet> sets = shape_sets(layer);
  app.footer(fmt::format(fmt::runtime(kExamples), program, layer, sets.empty() ? "" : sets[0].lines[0].problem));
  add_what(app, words);
  add_how(app, words);
  if (!io::parse(app, ours)) return std::nullopt;

  options.pass = words.pass.empty() ? &default_pass(layer) : &find_pass(layer, words.pass);
  options.list = words.list;
  options.environment = words.environment;
  if (options.list || options.environment) return options;
  const bool is_script = words.baseline.ends_with(".py");
  if (is_script && !std::filesystem::is_regular_file(words.baseline)) {
    throw UsageError(fmt::format("--baseline {}: no such file", words.baseline));
  }
  if (!is_script) options.baseline_search = kSearches.at(words.unchecked ? "none" : words.baseline);
  options.baseline = words.baseline;
  require_device(words);
  options.mode = mode_of(words);
  options.seed = seed_option(words);
  options.jobs = jobs_of(words, *options.pass, options.seed, options.notes);
  require_backend();
  options.schedule = words.schedule;
  options.record = words.record;
  options.resume = words.resume;
  options.samples = words.samples;
  if (words.injected_slowdown_percent) options.injected_slowdown = *words.injected_slowdown_percent / 100;
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
  if (options.mode != Mode::unchecked && options.baseline != "kept") {
    command += fmt::format(" --baseline {}", quoted(options.baseline));
  }
  return command;
}

std::string repeating_flags(const Options& options) {
  return fmt::format(" --seed {}{}{}", options.seed, options.schedule.empty() ? "" : " --schedule " + options.schedule,
                     options.mode == Mode::check ? " --check" : "");
}

std::string list_of(const Pass& pass) {
  std::string text = fmt::format("{:<28} {:<18} {}\n", "version", "dtypes", "needs");
  for (const Version* v : versions_of(pass)) {
    std::string needs = v->def.needs;
    if (v->def.min_arch > 0) {
      needs += fmt::format("{}sm_{}{}", needs.empty() ? "" : "; ", v->def.min_arch,
                           v->def.arch_specific ? "a" : " or later");
    }
    text += fmt::format("{:<28} {:<18} {}\n", v->label(), names_of(v->def.dtypes, " "), needs);
  }
  return text;
}

}  // namespace ladder
