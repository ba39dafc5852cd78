// judge_<layer>, the judge of a candidate: has the reference and the inputs, gives the verdict, contains no version.
// Started by ./ladder try. Prints lines of JSON; the last is the verdict.
#include <fmt/format.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "bench/untrusted/drawn.h"
#include "bench/untrusted/remote.h"
#include "bench/untrusted/times.h"
#include "core/backend.h"
#include "core/check/check.h"
#include "core/error.h"
#include "core/program.h"
#include "core/shapes.h"

namespace ladder {
namespace {

using nlohmann::json;

struct Options {
  std::string pass;
  std::vector<std::string> problems, sets, dtypes;
  std::vector<std::string> timed;
  double most_values = 0;  // in all tensors of the timed problems together; 0: no limit
  bool with_baseline = false;
  int num_drawn = 0;  // problems to draw
  double seconds = 300;
  std::uint64_t seed = 0;
  // Loosest tolerances that a version of the pass has; a candidate may not exceed them.
  double error_growth = 1;
  double least_arithmetic = 1;
  bool inexact = false;
  std::vector<std::string> command;
};

// Results of a run, from which the verdict is made.
struct Run {
  Status status = Status::pass;
  std::string reason;
  json location = json::object();  // problem, plan and schedule that `reason` refers to
  double error = 0;                // largest error
  int num_problems = 0;            // a problem counts once for each dtype
  int num_checked = 0;
  std::string skipped;  // reason of the latest skipped problem
  json times = json::array();
  json untimed = json::array();  // problems left out because of `most_values`
};

class Judge {
 public:
  Judge(const Options& options, const Pass& pass)
      : options_(options), pass_(pass), remote_(options.command, options.seconds) {}

  Run run() {
    try {
      list();
      std::vector<Case> listed;
      std::vector<Case> timed;
      for (const std::string& line : options_.problems) add_cases(listed, line, true);
      for (const std::string& set : options_.sets) {
        for (const NamedCase& named : named_cases(pass_, set))
          add_cases(listed, named.problem.text, named.problem.names_dtype);
      }
      for (const std::string& line : options_.timed) add_cases(timed, line, true);
      if (options_.most_values > 0) leave_out_large(timed);
      const int num_drawn = dtypes_.empty() ? 0 : options_.num_drawn;
      run_.num_problems = static_cast<int>(listed.size() + timed.size()) + num_drawn;
      for (const Case& c : listed) {
        if (run_.status == Status::pass) (void)check_case(c);
      }
      check_drawn(num_drawn);
      for (const Case& c : timed) {
        if (run_.status == Status::pass) check_and_time(c);
      }
      if (run_.status == Status::pass) {
        num_drawn > 0 ? require_half("drawn problems", num_drawn_run_, num_drawn)
                      : require_half("problems", run_.num_checked, run_.num_problems);
      }
    } catch (const json::exception&) {
      fail("it does not keep to the protocol");
    } catch (const Failure& failure) {
      fail(failure.what());
    }
    return std::move(run_);
  }

 private:
  void fail(const std::string& reason) {
    run_.status = Status::fail;
    run_.reason = reason;
  }

  // Read which of the requested dtypes the candidate has, and its tolerances. Refuse tolerances looser than those of the
  // pass's versions.
  void list() {
    const json head = remote_.ask({{"op", "list"}}).head;
    for (const json& word : head.at("dtypes")) {
      const auto dtype = parse_dtype(word.get<std::string>());
      const bool wanted = options_.dtypes.empty() || std::ranges::count(options_.dtypes, word.get<std::string>()) > 0;
      if (dtype && wanted) dtypes_.push_back(*dtype);
    }
    if (dtypes_.empty()) run_.skipped = "it has none of the dtypes";
    def_.error_growth = head.at("error_growth");
    def_.least_arithmetic = head.at("least_arithmetic");
    def_.exact = head.at("exact");
    if (!(def_.error_growth >= 0 && def_.error_growth <= options_.error_growth)) {
      throw Failure(fmt::format("it asks for .error_growth = {:g}; a version of {} may have {:g}", def_.error_growth,
                                pass_.path(), options_.error_growth));
    }
    if (!(def_.least_arithmetic >= options_.least_arithmetic)) {
      throw Failure(fmt::format("it asks for .least_arithmetic = {:g}; a version of {} may have {:g}",
                                def_.least_arithmetic, pass_.path(), options_.least_arithmetic));
    }
    if (!def_.exact && !options_.inexact) throw Failure("it asks for .exact = false, as no version of its pass does");
  }

  // Add the cases of a problem line: its own dtype if it names one, else each dtype that is both requested and supported.
  void add_cases(std::vector<Case>& cases, const std::string& line, bool names_dtype) const {
    const Case c = pass_.parse(line);
    if (names_dtype && c.names_dtype) return cases.push_back(c);
    for (const Dtype dtype : dtypes_) cases.push_back(c.with_dtype(dtype));
  }

  // Keep the timed problems, in their order, that have together no more than `most_values`; the smallest at least. Each
  // costs some 20 copies of its tensors between the processes.
  void leave_out_large(std::vector<Case>& timed) {
    const auto values = [](const Case& c) {
      double sum = 0;
      for (const TensorSpec& spec : c.tensors) sum += static_cast<double>(spec.elements());
      return sum;
    };
    double left = options_.most_values;
    if (!timed.empty()) left = std::max(left, values(*std::ranges::min_element(timed, {}, values)));
    std::erase_if(timed, [&](const Case& c) {
      const bool fits = values(c) <= left;
      if (fits) left -= values(c);
      if (!fits) run_.untimed.push_back(c.text);
      return !fits;
    });
  }

  // Check problems that nobody knew before. Enlarge every third of them, each in another size, until a check takes a second
  // or so, or a quarter of one on a GPU.
  void check_drawn(int num_drawn) {
    constexpr int kBases = 8;
    std::mt19937_64 random(options_.seed);
    const Supports supports = [&](const Case& c) {
      const std::string reason = remote_.ask({{"op", "problem"}, {"text", c.text}}).head.at("skip");
      if (!reason.empty()) run_.skipped = one_line(reason, 200);
      return reason.empty();
    };
    for (int i = 0; i < num_drawn && run_.status == Status::pass; ++i) {
      std::optional<Case> c = drawn_problem(pass_, dtypes_, i % 6 == 5 ? kBases : 1, random, supports);
      if (c) ++num_drawn_run_;
      for (bool is_quick = c && check_one_drawn(*c); i % 3 == 2 && is_quick;) {
        c = enlarged(*c, i / 3, random, supports);
        if (!c) break;
        ++run_.num_problems;
        is_quick = check_one_drawn(*c);
      }
    }
  }

  // Returns true if the candidate passed quickly. A null answer may fit a problem by chance: it does not count then.
  bool check_one_drawn(const Case& c) {
    static const std::chrono::milliseconds kQuick(backend::kind() == backend::Kind::gpu ? 250 : 1000);
    const auto began = std::chrono::steady_clock::now();
    (void)check_case(c);
    if (run_.status == Status::untrusted) {
      run_.status = Status::pass;
      run_.reason.clear();
      run_.location = json::object();
      --run_.num_problems;
    }
    return run_.status == Status::pass && std::chrono::steady_clock::now() - began < kQuick;
  }

  // SKIP a candidate that runs fewer than half of the problems: its PASS would say little. Drawn problems count alone where
  // there are any, since a set may have many problems of a kind that an honest version does not run.
  void require_half(const char* kind, int num_run, int num_asked) {
    if (num_run > 0 && 2 * num_run >= num_asked) return;
    run_.status = Status::skip;
    run_.reason = fmt::format("it runs {} of {} {}, fewer than half (--problem names those to try): {}", num_run,
                              num_asked, kind, run_.skipped);
  }

  // Returns false if the candidate skips the case.
  bool check_case(const Case& c) {
    run_.location = {{"problem", c.text}, {"dtype", name(c.dtype)}};
    std::cout << json{{"progress", c.text}} << std::endl;
    const json head = remote_.ask({{"op", "problem"}, {"text", c.text}}, {}).head;
    if (std::string reason = head.at("skip"); !reason.empty()) {
      run_.skipped = one_line(reason, 200);
      run_.location = json::object();
      return false;
    }
    if (head.at("plans").empty()) throw Failure("it has no plan for the problem");
    std::optional<CheckedCase> checked(std::in_place, c, options_.seed);
    const auto schedules = backend::schedules();
    std::vector<std::string> orders = {schedules.front()};
    const std::size_t other = static_cast<std::size_t>(run_.num_checked) % schedules.size();
    if (other > 0) orders.push_back(schedules[other]);
    for (const std::string plan : head.at("plans")) {
      for (const std::string& schedule : orders) {
        run_.location["plan"] = plan;
        run_.location["schedule"] = schedule;
        check_plan(checked, plan, schedule);
        if (run_.status == Status::fail && schedule != schedules.front()) {
          run_.reason +=
              fmt::format("; it passes under {} and fails under {}: likely a race", schedules.front(), schedule);
        }
        if (run_.status != Status::pass) return true;
      }
    }
    ++run_.num_checked;
    run_.location = json::object();
    return true;
  }

  // Check one plan. Try up to kSeeds further seeds while a null answer fits the values by chance, as for one pixel
  // times a weight of 1.
  void check_plan(std::optional<CheckedCase>& c, const std::string& plan, const std::string& schedule) {
    constexpr int kSeeds = 20;
    remote_.ask({{"op", "schedule"}, {"name", schedule}});
    const std::unique_ptr<KernelUnderTest> kernel = remote_.bind(**c, plan);
    Verdict verdict = check(*kernel, *c, def_);
    for (int i = 0; i < kSeeds && verdict.status == Status::untrusted; ++i) {
      Case again = **c;
      const std::uint64_t seed = c->seed() + 1;
      c.emplace(std::move(again), seed);
      verdict = check(*kernel, *c, def_);
    }
    run_.error = std::max(run_.error, verdict.error);
    if (verdict.status == Status::pass && schedule == backend::schedules().front()) {
      verdict = check_conduct(*kernel, *c, conduct_launches(), def_);
    }
    run_.status = verdict.status;
    run_.reason = verdict.reason;
  }

  void check_and_time(const Case& c) {
    json one = {{"problem", c.text}, {"dtype", name(c.dtype)}, {"cold_us", nullptr}, {"us", nullptr}};
    one.update({{"baseline_us", nullptr}, {"baseline", nullptr}});
    if (!check_case(c)) {
      run_.times.push_back(one);
      return;
    }
    if (run_.status != Status::pass) return;
    run_.location = {{"problem", c.text}, {"dtype", name(c.dtype)}};
    CheckedCase checked(c, options_.seed);
    const CandidateTimes times = times_of(remote_, checked, def_);
    one.update({{"cold_us", 1e6 * times.cold_seconds}, {"us", 1e6 * times.warm_seconds}});
    if (options_.with_baseline) {
      const BaselineTime baseline = baseline_of(checked);
      one["baseline"] = baseline.library;
      if (baseline.cold_seconds > 0) one["baseline_us"] = 1e6 * baseline.cold_seconds;
    }
    run_.times.push_back(one);
    run_.location = json::object();
    if (times.doubt.empty()) return;
    run_.status = Status::untrusted;
    run_.reason = times.doubt;
  }

  const Options& options_;
  const Pass& pass_;
  Remote remote_;
  AnyVersionDef def_;
  std::vector<Dtype> dtypes_;  // both requested and the candidate's
  int num_drawn_run_ = 0;      // drawn problems that the candidate runs, without the enlarged ones
  Run run_;
};

Options parse(int argc, char** argv) {
  Options options;
  char** const separator =
      std::find_if(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; });
  options.command.assign(std::min(separator + 1, argv + argc), argv + argc);  // starts the candidate's process
  if (options.command.empty()) throw UsageError("no command after --");
  CLI::App app("judges a candidate of a pass; ./ladder try starts it");
  app.add_option("--pass", options.pass)->required();
  app.add_option("--problem", options.problems);
  app.add_option("--set", options.sets);
  app.add_option("--time", options.timed, "problems");
  app.add_option("--most-values", options.most_values, "in all tensors of those problems");
  app.add_flag("--baseline", options.with_baseline, "beside those");
  app.add_option("--draw", options.num_drawn, "problems of the judge's own");
  app.add_option("--dtype", options.dtypes);
  app.add_option("--seconds", options.seconds);
  app.add_option("--seed", options.seed, "of the inputs; random by default");
  app.add_option("--error-growth", options.error_growth);
  app.add_option("--least-arithmetic", options.least_arithmetic);
  app.add_flag("--inexact", options.inexact);
  try {
    app.parse(static_cast<int>(separator - argv), argv);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  if (app.count("--seed") == 0) {
    std::random_device random;
    options.seed = (std::uint64_t{random()} << 31) ^ random();
  }
  return options;
}

int run(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // end with the parent process
  keep_freed_memory();
  const Options options = parse(argc, argv);
  const auto slash = options.pass.find('/');
  const Pass& pass = find_pass(options.pass.substr(0, slash), options.pass.substr(slash + 1));
  const Run run = Judge(options, pass).run();
  json verdict = run.location;
  verdict.update({{"verdict", name(run.status)},
                  {"reason", one_line(run.reason)},
                  {"error", std::isfinite(run.error) ? json(run.error) : json()},
                  {"seed", options.seed},
                  {"device", backend::unavailable() ? "none" : backend::device().slug},
                  {"checked", run.num_checked},
                  {"problems", run.num_problems},
                  {"times", run.times},
                  {"untimed", run.untimed}});
  std::cout << verdict.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  return 0;
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::program_status("", [&] { return ladder::run(argc, argv); });
}
