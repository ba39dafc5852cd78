#include "bench/bench.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include "bench/options.h"
#include "bench/partial_record.h"
#include "bench/record.h"
#include "bench/session.h"
#include "bench/table.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/nvtx.h"
#include "core/program.h"
#include "reference/baseline_worker.h"

namespace ladder {
namespace {

std::string device_line() {
  if (backend::kind() == backend::Kind::emulator) return "device: emulator (no speeds: times come from a GPU)";
  const backend::DeviceInfo& d = backend::device();
  return fmt::format("device: {} (sm_{}, {} SMs, driver {}, CUDA {})", d.name, d.arch, d.num_sms, d.driver, d.runtime);
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// Launch each job once, alone in an NVTX range named after the job. Inputs are random, outputs poison.
void launch_once(const Options& options, const std::string& program, PartialRecord& record) {
  for (const Job& job : options.jobs) {
    const Version& v = *job.version;
    const Case& c = job.problem;
    Result result{.version = &v, .problem = c, .command = command_of(program, job, options)};
    if (const std::string reason = why_not(v, c); !reason.empty()) {
      std::cout << fmt::format("{}  SKIP: {}\n", job.name(), reason);
      result.verdict = {.status = Status::skip, .reason = reason};
      record.add(to_json(result));
      continue;
    }
    const Kernel kernel = plan(v, c);
    result.plan = kernel.name;
    result.workspace_bytes = kernel.workspace_bytes;
    DeviceTensors tensors(c, fill(c, Pattern::normal, options.seed), kernel.workspace_bytes);
    const BoundLaunch launch = kernel.bind(tensors.pointers(), tensors.workspace());
    backend::synchronize();
    const std::string range = fmt::format("{}/v{:02}/{}", c.pass->path(), v.number, c.text);
    {
      const NvtxRange nvtx(range);
      launch(backend::check_stream());
      backend::synchronize();
    }
    std::cout << fmt::format("{}  launched once\n", range);
    result.verdict.status = Status::unchecked;
    result.baseline.reason = "not asked for";
    record.add(to_json(result));
  }
}

// Report a result to Google Benchmark. The iteration time is the cold median, so that one iteration is a whole
// measurement.
void report(benchmark::State& state, const Result& result) {
  if (result.verdict.status == Status::fail || result.verdict.status == Status::skip) {
    const std::string message = fmt::format("{}: {}", name(result.verdict.status), result.verdict.reason);
    state.SkipWithError(message.c_str());
    return;
  }
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(result.times ? result.times->cold_seconds.median : 0);
  state.SetLabel(fmt::format("{}{}", name(result.verdict.status), result.times ? "" : ", not timed"));
  if (result.verdict.status != Status::unchecked) state.counters["error"] = result.verdict.error;
  if (!result.times) return;
  const double cold = result.times->cold_seconds.median;
  state.counters["cold_us"] = 1e6 * cold;
  state.counters["cold_low_us"] = 1e6 * result.times->cold_seconds.low;
  state.counters["cold_high_us"] = 1e6 * result.times->cold_seconds.high;
  state.counters["warm_us"] = 1e6 * result.times->warm_seconds;
  state.counters["tflops"] = 1e-12 * result.problem.flops / cold;
  state.counters["gbs"] = 1e-9 * result.problem.traffic.bytes() / cold;
  state.counters["throttled_samples"] = result.times->throttled;
  if (result.baseline.times) {
    state.counters["baseline_cold_us"] = 1e6 * result.baseline.times->cold_seconds.median;
    state.counters["x_baseline"] = result.baseline.times->cold_seconds.median / cold;
  }
}

void add_context(const nlohmann::json& environment, const std::string& prefix = {}) {
  for (const auto& [key, value] : environment.items()) {
    if (value.is_object()) {
      add_context(value, key + "_");
    } else {
      benchmark::AddCustomContext(prefix + key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

bool has_argument(const std::vector<std::string>& arguments, const std::string& prefix) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const std::string& argument) { return argument.starts_with(prefix); });
}

// Initialize Google Benchmark. It keeps argv[0], so that the words must live as long as `options`.
void initialize_benchmark(Options& options) {
  for (const std::string& word : options.benchmark_arguments) {
    constexpr std::string_view kOut = "--benchmark_out=";
    if (!word.starts_with(kOut)) continue;
    const std::string path = word.substr(kOut.size());
    if (!path.starts_with("/dev/")) require_writable("--benchmark_out", path);
  }
  std::vector<char*> argv;
  for (std::string& word : options.benchmark_arguments) argv.push_back(word.data());
  int argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
  if (argc > 1) throw UsageError(fmt::format("Google Benchmark has no flag '{}'", argv[1]));
}

void print_calibration(std::ostream& out, const Calibration& calibration) {
  out << fmt::format("timer: empty kernel {:.2f} us; spins", 1e6 * calibration.empty.seconds);
  for (const Calibration::Spin& spin : calibration.spins) {
    out << fmt::format(" {:.2f} read as {:.2f} us;", 1e6 * spin.expected_seconds, 1e6 * spin.seconds);
  }
  out << fmt::format(" device copy {:.0f} GB/s; SM clock up to {:.0f} MHz{}\n", 1e-9 * calibration.copy_bytes_per_s,
                     1e-6 * calibration.sm_clock_hz,
                     calibration.failure.empty() ? "" : "; UNTRUSTED: " + calibration.failure);
}

// Progress line on a terminal, shown while the object lives: "3 of 7 problems, about 12 s left: ...".
class Progress {
 public:
  explicit Progress(const std::string& line) : shown_(isatty(STDERR_FILENO) != 0) {
    if (shown_) std::cerr << "\r\033[K" << line << std::flush;
  }
  ~Progress() {
    if (shown_) std::cerr << "\r\033[K" << std::flush;
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  bool shown_;
};

// Reporter that prints nothing: the table is printed as results come in.
class SilentReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

// Register every job with Google Benchmark, and run those that pass its filter. Returns their number.
std::size_t run_benchmarks(const Options& options, const std::string& program, bool table, Session* session,
                           std::vector<Result>& results, PartialRecord& record) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point started = Clock::now();
  const Calibration* calibration = session ? session->calibration() : nullptr;
  std::optional<Table> rows;
  if (table) {
    rows.emplace(options.jobs, calibration ? std::optional(calibration->copy_bytes_per_s) : std::nullopt,
                 repeating_flags(options));
  }
  for (std::size_t i = 0; i < options.jobs.size(); ++i) {
    const auto body = [&, i](benchmark::State& state) {
      const Job& job = options.jobs[i];
      {
        const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
        const Progress progress(progress_line(options.jobs, i, seconds));
        results.push_back(session->run(*job.version, job.problem));
      }
      results.back().command = command_of(program, job, options);
      record.add(to_json(results.back()));
      if (rows) rows->print(results.back());
      report(state, results.back());
    };
    // The harness decides how often a kernel runs; to Google Benchmark the whole measurement is one iteration.
    benchmark::RegisterBenchmark(options.jobs[i].name().c_str(), body)
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  if (!table) return benchmark::RunSpecifiedBenchmarks();
  SilentReporter reporter;
  std::ostringstream complaints;  // the caller reports an empty match, in the words of our command line
  reporter.SetErrorStream(&complaints);
  const std::size_t count = benchmark::RunSpecifiedBenchmarks(&reporter);
  if (count > 0) std::cerr << complaints.str();
  std::cout << rows->causes().summary(results);
  return count;
}

// Header of a record: everything but the results.
nlohmann::json header_of(const Calibration* calibration, const Options& options, int argc, char** argv) {
  nlohmann::json header = {{"schema", kRecordSchema},
                           {"created", utc_now()},
                           {"command", std::vector<std::string>(argv, argv + argc)},
                           {"seed", options.seed},
                           {"environment", environment()},
                           {"calibration", nullptr}};
  if (calibration) header["calibration"] = to_json(*calibration);
  return header;
}

// Make malloc reuse freed memory. Every checked launch allocates and frees large host tensors, whose pages one thread
// would otherwise request and clear anew each time.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

int run(const char* layer, int argc, char** argv) {
  keep_freed_memory();
  (void)all_versions();  // throws if a version file is misnamed
  std::optional<Options> parsed = parse_options(layer, argc, argv);
  if (!parsed) return 0;
  Options& options = *parsed;
  if (options.list) {
    std::cout << list_of(*options.pass);
    return 0;
  }
  if (options.environment) {
    std::cout << environment().dump(1) << '\n';
    return 0;
  }
  if (!options.record.empty()) require_writable("--record", options.record);
  initialize_benchmark(options);
  use_pytorch_baseline(*options.pass);
  if (options.baseline.ends_with(".py")) use_script_baseline(*options.pass, options.baseline);

  // Text for people goes to stderr if stdout is to be JSON or a bare list.
  const bool listing = has_argument(options.benchmark_arguments, "--benchmark_list_tests");
  const bool table = !listing && !has_argument(options.benchmark_arguments, "--benchmark_format");
  std::ostream& people = table ? std::cout : std::cerr;
  people << device_line() << '\n' << fmt::format("seed: {}\n", options.seed);
  for (const std::string& note : options.notes) people << note << '\n';
  PartialRecord record(listing ? "" : options.record, options.resume);
  if (record.kept() > 0) {
    people << fmt::format("resumed: {} results kept\n", record.kept());
    std::erase_if(options.jobs, [&](const Job& job) { return record.holds(*job.version, job.problem); });
  }
  if (options.mode == Mode::once) {
    launch_once(options, argv[0], record);
    record.finish(header_of(nullptr, options, argc, argv));
    return 0;
  }

  std::unique_ptr<Session> session;
  if (!listing) {
    const Progress progress("preparing the timer");
    session = std::make_unique<Session>(SessionOptions{.seed = options.seed,
                                                       .checked = options.mode != Mode::unchecked,
                                                       .timed = options.mode != Mode::check && !Timer::unavailable(),
                                                       .samples = options.samples,
                                                       .injected_slowdown = options.injected_slowdown,
                                                       .search = options.baseline_search});
  }
  if (session && session->calibration()) print_calibration(people, *session->calibration());
  people << std::flush;
  add_context(environment());
  std::vector<Result> results;
  const bool done = options.jobs.empty();  // all jobs were done before the interruption
  if (!done && run_benchmarks(options, argv[0], table, session.get(), results, record) == 0) {
    throw UsageError("nothing matched --benchmark_filter; --benchmark_list_tests lists the names");
  }
  if (listing) return 0;

  people << tally(results) << '\n';
  if (!options.record.empty()) {
    record.finish(header_of(session->calibration(), options, argc, argv));
    people << "record: " << options.record << '\n';
  }
  return record.failed() ? 1 : 0;
}

}  // namespace

int bench_main(const char* layer, int argc, char** argv) {
  return program_status(argv[0], [&] { return run(layer, argc, argv); });
}

}  // namespace ladder
