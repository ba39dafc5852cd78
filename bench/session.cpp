#include "bench/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <random>

#include "bench/roofline.h"
#include "core/backend.h"
#include "core/early_tensors.h"
#include "core/error.h"

namespace ladder {
namespace {

constexpr double kThrottledRatio = 0.75;

// Warm samples, and the executions in each: enough to fill the pipe, but no more than a slow kernel's patience.
constexpr int kWarmSamples = 7;
constexpr int kWarmLaunches = 20;
constexpr double kMaxWarmSeconds = 20e-3;

// The heuristic's plan is sampled in one of this many rounds: its figure is for orientation.
constexpr int kHeuristicEvery = 3;

constexpr int kStreamingSamples = 9;

void finish(Times& times, double highest_clock_hz) {
  std::vector<double> cold;
  std::vector<double> warm;
  for (const Sample& s : times.cold) {
    cold.push_back(s.seconds);
    if (s.sm_clock_hz > 0 && s.sm_clock_hz < kThrottledRatio * highest_clock_hz) ++times.throttled;  // 0 is unknown
  }
  for (const Sample& s : times.warm) warm.push_back(s.seconds);
  times.cold_seconds = median_interval(cold);
  if (!warm.empty()) times.warm_seconds = median(warm);
}

// FNV-1a, 64 bits (Fowler, Noll and Vo): tells outputs apart, and protects from nobody.
std::string digest(const std::vector<std::vector<float>>& outputs) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::vector<float>& output : outputs) {
    for (const float value : output) hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3u;
  }
  return fmt::format("{:016x}", hash);
}

// Device copies of a case's outputs as they were at one moment of the stream.
class Snapshot {
 public:
  Snapshot(const Case& c, void* const* pointers) : case_(c) {
    for (std::size_t i = 0; i < c.tensors.size(); ++i) {
      if (!c.tensors[i].is_written()) continue;
      const std::size_t bytes = c.tensors[i].bytes();
      std::shared_ptr<void> copy(backend::allocate(bytes), backend::release);
      copies_.push_back({.spec = &case_.tensors[i], .memory = copy});
      works_.push_back(Timer::copy(copy.get(), pointers[i], bytes));
    }
  }

  Work take() const {
    return [this](Stream stream) {
      for (const Work& work : works_) work(stream);
    };
  }

  std::vector<std::vector<float>> outputs() const {
    std::vector<std::vector<float>> outputs;
    for (const Copy& copy : copies_) {
      std::vector<unsigned char> stored(copy.spec->bytes());
      backend::copy_out(stored.data(), copy.memory.get(), stored.size());
      outputs.push_back(decoded(*copy.spec, stored));
    }
    return outputs;
  }

 private:
  struct Copy {
    const TensorSpec* spec;
    std::shared_ptr<void> memory;
  };
  Case case_;
  std::vector<Copy> copies_;
  std::vector<Work> works_;
};

Kernel planned(const Version& v, const Case& c, Result& result) {
  Kernel kernel = plan(v, c);
  result.plan = kernel.name;
  result.workspace_bytes = kernel.workspace_bytes;
  return kernel;
}

std::string impossible(const Version& v, const Case& c, const Times& times) {
  const backend::DeviceInfo& device = backend::device();
  const double cold_lower_bound = cold_lower_bound_seconds(device, c, v.def);
  const double warm_lower_bound = warm_lower_bound_seconds(device, c, v.def);
  if (times.cold_seconds.median < cold_lower_bound) {
    return fmt::format("{:.2f} us is below the {:.2f} us that arithmetic or memory need at their peak",
                       1e6 * times.cold_seconds.median, 1e6 * cold_lower_bound);
  }
  if (!times.warm.empty() && times.warm_seconds < warm_lower_bound) {
    return fmt::format("{:.2f} us warm is below the {:.2f} us that the arithmetic needs at its peak",
                       1e6 * times.warm_seconds, 1e6 * warm_lower_bound);
  }
  return {};
}

}  // namespace

// The case at hand: what its versions are checked and measured against. The baseline has tensors of its own, so that no
// kernel sees another's answer.
struct Session::CurrentCase {
  CurrentCase(const Case& c, std::uint64_t seed) : checked(c, seed) {}

  void find_baseline(const Search& search, const Measure& measure) {
    baseline_requested = true;
    if (search.extent == Search::none) {
      result.reason = "not asked for";
      return;
    }
    if (backend::kind() == backend::Kind::emulator) {
      result.reason = "none on the emulator";
      return;
    }
    try {
      const Case& c = *checked;
      const ReferenceRun& run = checked.run(Pattern::normal);
      tensors = std::make_unique<DeviceTensors>(c, run.inputs, 0);
      baseline = make_baseline(c, tensors->pointers(), search, measure);
      result.library = baseline->library();
      result.reason = baseline->missing();
      result.searched = baseline->searched();
      result.best = baseline->plan(Choice::best);
      result.heuristic = baseline->plan(Choice::heuristic);
      result.tried = baseline->tried();
      result.workspace_bytes = baseline->workspace_bytes();
      result.empty_seconds = baseline->empty_seconds();
      result.verdict = judged(*baseline, c, *tensors, run);
    } catch (const std::exception& error) {
      lose(error.what());
    }
  }

  void lose(const std::string& reason) {
    baseline.reset();
    result = {};
    result.reason = one_line(reason);
  }

  CheckedCase checked;
  HostTensors unchecked_inputs;  // where nothing is compared with the reference
  bool baseline_requested = false;
  std::unique_ptr<DeviceTensors> tensors;
  std::unique_ptr<Baseline> baseline;  // null if there is none
  BaselineResult result;               // without times
  std::optional<StreamingTime> streaming;
};

Session::Session(const SessionOptions& options) : options_(options) {
  if (options_.timed) timer_ = std::make_unique<Timer>();
}

Session::~Session() = default;

const Calibration* Session::calibration() const { return timer_ ? &timer_->calibration() : nullptr; }

Session::CurrentCase& Session::current_case(const Case& c) {
  if (current_ && current_->checked->text == c.text && current_->checked->pass == c.pass) return *current_;
  current_.reset();  // its memory first
  current_ = std::make_unique<CurrentCase>(c, options_.seed);
  return *current_;
}

Result Session::run(const Version& v, const Case& c) {
  const auto started = std::chrono::steady_clock::now();
  Result result;
  result.version = &v;
  result.problem = c;
  try {
    options_.checked ? run_checked(v, c, result) : run_unchecked(v, c, result);
  } catch (const std::exception& error) {
    result.verdict.status = Status::fail;
    result.verdict.reason = one_line(error.what());
  }
  if (result.verdict.status == Status::fail) result.times.reset();
  result.seconds_spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return result;
}

void Session::run_checked(const Version& v, const Case& c, Result& result) {
  CurrentCase& current = current_case(c);
  result.verdict = full_check(v, current.checked);
  if (result.verdict.status == Status::fail) {
    const std::string difference = difference_between_schedules(v, current.checked);
    if (!difference.empty()) result.verdict.reason += "; " + difference;
  }
  if (result.verdict.status != Status::pass) return;
  if (!current.baseline_requested) {
    current.streaming = time_streaming_kernel(c, current.checked.run(Pattern::normal).inputs);
    const Measure measure = [this](const Work& work) {
      if (!timer_) {
        work(backend::check_stream());
        backend::synchronize();
        return 1.0;  // nothing is ranked in a session that is not timed
      }
      timer_->run(work);
      return typical_seconds([&] { return timer_->cold(work).seconds; });
    };
    const bool ranked = timer_ || options_.search.extent == Search::none;
    current.find_baseline(ranked ? options_.search.of(c) : Search::heuristic, measure);
  }
  result.baseline = current.result;
  result.streaming = current.streaming;
  current.result.tried.clear();  // once is enough for a record
  if (current.baseline && current.result.verdict.status == Status::pass) {
    result.verdict = against_baseline(result.verdict, current.result.verdict, c, v.def);
  }
  if (timer_ && result.verdict.status == Status::pass) time(v, current, result);
}

// Samples for somebody who checks otherwise: by the digest, against a run that was checked.
void Session::run_unchecked(const Version& v, const Case& c, Result& result) {
  if (const std::string reason = why_not(v, c); !reason.empty()) {
    result.verdict = {.status = Status::skip, .reason = reason};
    return;
  }
  result.verdict.status = Status::unchecked;
  result.baseline.reason = "not asked for";
  CurrentCase& current = current_case(c);
  if (current.unchecked_inputs.values.empty()) current.unchecked_inputs = fill(c, Pattern::normal, options_.seed);
  if (timer_) {
    time(v, current, result);
    return;
  }
  const Kernel kernel = planned(v, c, result);
  DeviceTensors tensors(c, current.unchecked_inputs, kernel.workspace_bytes);
  kernel.bind(tensors.pointers(), tensors.workspace())(backend::check_stream());
  result.digest = digest(tensors.outputs());
}

Work Session::slowed(const Work& work) {
  const auto delayed = [&](double seconds) -> Work {
    return [work, delay = timer_->delay(seconds)](Stream stream) {
      work(stream);
      delay(stream);
    };
  };
  constexpr int kSamples = 15;
  timer_->run(delayed(0));
  std::vector<double> seconds(kSamples);
  for (double& sample : seconds) sample = timer_->cold(delayed(0)).seconds;
  return delayed(*options_.injected_slowdown * median(seconds));
}

std::optional<StreamingTime> Session::time_streaming_kernel(const Case& c, const HostTensors& inputs) {
  if (!timer_ || !options_.checked || !memory_bound(backend::device(), c)) return {};
  const auto read_bytes = static_cast<std::size_t>(c.traffic.read_bytes);
  const auto write_bytes = static_cast<std::size_t>(c.traffic.write_bytes);
  constexpr std::size_t kRounding = 16;  // of Timer::streaming_kernel
  const std::shared_ptr<void> from(backend::allocate(read_bytes + kRounding), backend::release);
  const std::shared_ptr<void> to(backend::allocate(write_bytes + kRounding), backend::release);
  // The inputs themselves: what bits are moved may matter.
  std::size_t filled = 0;
  for (std::size_t i = 0; i < c.tensors.size() && filled < read_bytes; ++i) {
    if (!c.tensors[i].is_read()) continue;
    const std::vector<unsigned char> stored = encoded(c.tensors[i], inputs.values[i]);
    const std::size_t bytes = std::min(stored.size(), read_bytes - filled);
    backend::copy_in(static_cast<unsigned char*>(from.get()) + filled, stored.data(), bytes);
    filled += bytes;
  }
  const Work streaming = Timer::streaming_kernel(to.get(), write_bytes, from.get(), read_bytes);
  timer_->run(streaming);
  StreamingTime time{.samples = std::vector<double>(kStreamingSamples)};
  for (double& seconds : time.samples) seconds = timer_->cold(streaming).seconds;
  time.seconds = median(time.samples);
  return time;
}

Sample Session::cold(Baseline& baseline, Choice choice) {
  if (const Work work = baseline.work(choice)) return timer_->cold(work);
  return {.seconds = baseline.sample(choice)};
}

void Session::time(const Version& v, CurrentCase& current, Result& result) {
  const Case& c = *current.checked;
  const ReferenceRun* const normal = options_.checked ? &current.checked.run(Pattern::normal) : nullptr;
  const ReferenceRun* const integer = options_.checked ? &current.checked.run(Pattern::integer) : nullptr;
  const HostTensors& inputs = normal ? normal->inputs : current.unchecked_inputs;
  const Kernel kernel = planned(v, c, result);
  DeviceTensors tensors(c, inputs, kernel.workspace_bytes);
  const Snapshot snapshot(c, tensors.data());
  const Work plain_work = [&] {
    const EarlyTensors early(tensors.weights());  // no launch of the timing writes them
    return kernel.bind(tensors.pointers(), tensors.workspace());
  }();
  const Work version_work = options_.injected_slowdown ? slowed(plain_work) : plain_work;
  for (const Work& work : {version_work, snapshot.take()}) timer_->run(work);
  for (const Choice choice : {Choice::best, Choice::heuristic}) {
    const Work work = current.baseline ? current.baseline->work(choice) : Work();
    if (work) timer_->run(work);
  }

  const auto check_snapshot = [&](Pattern pattern, const char* which) {
    const std::vector<std::vector<float>> outputs = snapshot.outputs();
    if (result.digest.empty() && pattern == Pattern::normal) result.digest = digest(outputs);
    if (!options_.checked) return;
    const ReferenceRun& run = pattern == Pattern::normal ? *normal : *integer;
    const Verdict verdict = within_limit(compare(c, pattern, outputs, run.expected, v.def), c, run.expected, v.def);
    if (verdict.status == Status::pass) return;
    throw Failure(fmt::format("the output of the {} timed launch: {}", which, verdict.reason));
  };

  Times version_times, best_times, heuristic_times;
  const auto sample_version = [&](bool checked, const char* which) {
    tensors.reset();
    version_times.cold.push_back(timer_->cold(version_work, checked ? snapshot.take() : Work()));
    if (checked) check_snapshot(Pattern::normal, which);
  };
  const auto sample_baseline = [&](int round) {
    if (!current.baseline) return;
    try {
      best_times.cold.push_back(cold(*current.baseline, Choice::best));
      if (round % kHeuristicEvery == 0) heuristic_times.cold.push_back(cold(*current.baseline, Choice::heuristic));
    } catch (const std::exception& error) {  // no fault of the version, which goes on alone
      current.lose(error.what());
      result.baseline = current.result;
    }
  };

  // At some round, nobody knows which, the inputs are others: an answer kept from an earlier launch is wrong then.
  std::random_device random;
  const int surprise = integer ? std::uniform_int_distribution<int>(0, options_.samples - 1)(random) : -1;
  for (int round = 0; round < options_.samples; ++round) {
    if (round == surprise) {
      tensors.refill(integer->inputs);
      tensors.reset();
      timer_->cold(version_work, snapshot.take());
      check_snapshot(Pattern::integer, "surprise");
      tensors.refill(normal->inputs);
    }
    const bool first = round == 0;
    const bool last = round == options_.samples - 1;
    // A B B A: whatever drifts, drifts for both.
    if (round % 2 == 1) sample_baseline(round);
    sample_version(first || last, first ? "first" : "last");
    if (round % 2 == 0) sample_baseline(round);
  }

  const auto warm_launches = [](const Times& times) {
    const double seconds = std::max(median_sample(times.cold).seconds, 1e-9);
    return std::clamp(static_cast<int>(kMaxWarmSeconds / seconds), 1, kWarmLaunches);
  };
  // Launch after launch changes what is read and written, so that only a first one can be compared.
  const bool repeatable = std::ranges::none_of(c.tensors, [](const TensorSpec& t) { return t.role == Role::inout; });
  for (int i = 0; i < (options_.checked ? kWarmSamples : 0); ++i) {
    const bool compared = repeatable && (i == 0 || i == kWarmSamples - 1);
    tensors.reset();
    version_times.warm.push_back(
        timer_->warm(version_work, warm_launches(version_times), compared ? snapshot.take() : Work()));
    if (compared) check_snapshot(Pattern::normal, i == 0 ? "first warm" : "last warm");
    const Work best = current.baseline ? current.baseline->work(Choice::best) : Work();
    if (best) best_times.warm.push_back(timer_->warm(best, warm_launches(best_times)));
  }
  if (const std::string damage = tensors.damage(); !damage.empty()) throw Failure("after timing: " + damage);

  double highest_clock_hz = timer_->calibration().sm_clock_hz;
  for (const Times* times : {&version_times, &best_times}) {
    for (const Sample& s : times->cold) highest_clock_hz = std::max(highest_clock_hz, s.sm_clock_hz);
  }
  finish(version_times, highest_clock_hz);
  if (current.baseline) {
    finish(best_times, highest_clock_hz);
    finish(heuristic_times, highest_clock_hz);
    result.baseline.times = best_times;
    result.baseline.heuristic_times = heuristic_times;
  }

  const Calibration& calibration = timer_->calibration();
  for (const std::string& doubt :
       {calibration.failure, disagreement(calibration.empty, median_sample(version_times.cold)),
        impossible(v, c, version_times)}) {
    if (doubt.empty() || result.verdict.status == Status::untrusted) continue;
    result.verdict.status = Status::untrusted;
    result.verdict.reason = doubt;
  }
  result.times = std::move(version_times);
}

}  // namespace ladder
