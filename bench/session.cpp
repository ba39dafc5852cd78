#include "bench/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <random>

#include "bench/roofline.h"
#include "core/backend.h"
#include "core/error.h"

namespace ladder {
namespace {

constexpr double kThrottledRatio = 0.75;

// Warm samples, and the executions in each: enough to fill the pipe, but no more than a slow kernel's patience.
constexpr int kWarmSamples = 7;
constexpr int kWarmLaunches = 20;
constexpr double kMaxWarmSeconds = 20e-3;

// The heuristic's plan is sampled every so many rounds: its figure is for orientation.
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

double median_of(const std::vector<Sample>& samples, double Sample::*figure) {
  std::vector<double> values;
  for (const Sample& s : samples) {
    if (s.*figure > 0) values.push_back(s.*figure);
  }
  return values.empty() ? 0 : median(values);
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
      if (c.tensors[i].role != Role::output) continue;
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

std::string impossible(const Case& c, const Times& times) {
  const backend::DeviceInfo& device = backend::device();
  const double cold_lower_bound = cold_lower_bound_seconds(device, c);
  const double warm_lower_bound = warm_lower_bound_seconds(device, c);
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

// What a case's versions are measured against; the baseline with tensors of its own, so that no kernel sees another's
// answer.
struct Session::CaseBaseline {
  CaseBaseline(const Case& c, std::uint64_t seed, Search search, const Measure& measure) : text(c.text), pass(c.pass) {
    if (search == Search::none) {
      result.reason = "not asked for";
      return;
    }
    if (backend::kind() == backend::Kind::emulator) {
      result.reason = "none on the emulator";
      return;
    }
    try {
      const auto checked = ladder::reference_run(c, Pattern::normal, seed);
      tensors = std::make_unique<DeviceTensors>(c, checked->inputs, 0);
      baseline = make_baseline(c, tensors->pointers(), search, measure);
      result.library = baseline->library();
      result.reason = baseline->missing();
      result.best = baseline->plan(Choice::best);
      result.heuristic = baseline->plan(Choice::heuristic);
      result.tried = baseline->tried();
      result.workspace_bytes = baseline->workspace_bytes();
      result.empty_seconds = baseline->empty_seconds();
      tensors->poison();
      baseline->answer();
      std::vector<bool> makes;
      for (const TensorSpec& spec : c.tensors) {
        if (spec.role == Role::output) makes.push_back(baseline->makes(spec));
      }
      result.verdict = compare(c, Pattern::normal, tensors->outputs(), checked->answers, makes);
    } catch (const std::exception& error) {
      lose(error.what());
    }
  }

  void lose(const std::string& reason) {
    baseline.reset();
    result = {};
    result.reason = one_line(reason);
  }

  std::string text;
  const Pass* pass = nullptr;
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

Session::CaseBaseline& Session::baseline_for(const Case& c) {
  if (baseline_ && baseline_->text == c.text && baseline_->pass == c.pass) return *baseline_;
  baseline_.reset();  // its memory first
  const std::optional<StreamingTime> streaming = time_streaming_kernel(c);
  const Measure measure = [this](const Work& work) {
    if (!timer_) {
      work(backend::check_stream());
      backend::synchronize();
      return 1.0;  // nothing is ranked in a session that is not timed
    }
    timer_->run(work);
    return typical_seconds([&] { return timer_->cold(work).seconds; });
  };
  baseline_ = std::make_unique<CaseBaseline>(
      c, options_.seed, timer_ || options_.search == Search::none ? options_.search : Search::heuristic, measure);
  baseline_->streaming = streaming;
  return *baseline_;
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
  result.verdict = check(v, c, options_.seed);
  if (result.verdict.status != Status::pass) return;
  CaseBaseline& baseline = baseline_for(c);
  result.baseline = baseline.result;
  result.streaming = baseline.streaming;
  baseline.result.tried.clear();  // once is enough for a record
  if (baseline.baseline && baseline.result.verdict.status == Status::pass) {
    result.verdict = against_baseline(result.verdict, baseline.result.verdict, v.checked_as(c));
  }
  if (timer_ && result.verdict.status == Status::pass) time(v, c, baseline, result);
}

// Samples for somebody who checks otherwise: by the digest, against a run that was checked.
void Session::run_unchecked(const Version& v, const Case& c, Result& result) {
  if (const std::string reason = why_not(v, c); !reason.empty()) {
    result.verdict = {.status = Status::skip, .reason = reason};
    return;
  }
  result.verdict.status = Status::unchecked;
  result.baseline.reason = "not asked for";
  if (timer_) {
    time(v, c, baseline_for(c), result);
    return;
  }
  DeviceTensors tensors(c, unchecked(c)->inputs, v.workspace_bytes(c));
  v.launch(c, tensors.pointers(), tensors.workspace(), backend::check_stream());
  result.digest = digest(tensors.outputs());
}

std::shared_ptr<const ReferenceRun> Session::unchecked(const Case& c) {
  if (!unchecked_ || unchecked_case_ != c.text) {
    unchecked_ = std::make_shared<ReferenceRun>(ReferenceRun{.inputs = fill(c, Pattern::normal, options_.seed)});
    unchecked_case_ = c.text;
  }
  return unchecked_;
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

std::optional<StreamingTime> Session::time_streaming_kernel(const Case& c) {
  if (!timer_ || !options_.checked || !memory_bound(backend::device(), c)) return {};
  const auto read_bytes = static_cast<std::size_t>(c.min_read_bytes());
  const auto write_bytes = static_cast<std::size_t>(c.min_write_bytes());
  constexpr std::size_t kRounding = 16;  // of Timer::streaming_kernel
  const std::shared_ptr<void> from(backend::allocate(read_bytes + kRounding), backend::release);
  const std::shared_ptr<void> to(backend::allocate(write_bytes + kRounding), backend::release);
  // The inputs themselves: what bits are moved may matter.
  const auto normal = reference_run(c, Pattern::normal, options_.seed);
  auto* next = static_cast<unsigned char*>(from.get());
  for (std::size_t i = 0; i < c.tensors.size(); ++i) {
    if (c.tensors[i].role != Role::input) continue;
    const std::vector<unsigned char> stored = encoded(c.tensors[i], normal->inputs.values[i]);
    backend::copy_in(next, stored.data(), stored.size());
    next += stored.size();
  }
  const Work move = Timer::streaming_kernel(to.get(), write_bytes, from.get(), read_bytes);
  timer_->run(move);
  StreamingTime streaming{.samples = std::vector<double>(kStreamingSamples)};
  for (double& seconds : streaming.samples) seconds = timer_->cold(move).seconds;
  streaming.seconds = median(streaming.samples);
  return streaming;
}

Sample Session::cold(Baseline& baseline, Choice choice) {
  if (const Work work = baseline.work(choice)) return timer_->cold(work);
  return {.seconds = baseline.sample(choice)};
}

void Session::time(const Version& v, const Case& plain, CaseBaseline& baseline, Result& result) {
  const Case c = v.checked_as(plain);
  const auto normal = options_.checked ? reference_run(c, Pattern::normal, options_.seed) : unchecked(plain);
  const auto integer = options_.checked ? reference_run(c, Pattern::integer, options_.seed) : nullptr;
  DeviceTensors tensors(c, normal->inputs, v.workspace_bytes(c));
  const Snapshot snapshot(c, tensors.pointers());
  const Work plain_work = [&](Stream stream) { v.launch(c, tensors.pointers(), tensors.workspace(), stream); };
  const Work version_work = options_.injected_slowdown ? slowed(plain_work) : plain_work;
  for (const Work& work : {version_work, snapshot.take()}) timer_->run(work);
  for (const Choice choice : {Choice::best, Choice::heuristic}) {
    const Work work = baseline.baseline ? baseline.baseline->work(choice) : Work();
    if (work) timer_->run(work);
  }

  const auto check_snapshot = [&](Pattern pattern, const ExpectedOutputs& answers, const char* which) {
    const std::vector<std::vector<float>> outputs = snapshot.outputs();
    if (result.digest.empty() && pattern == Pattern::normal) result.digest = digest(outputs);
    if (!options_.checked) return;
    const Verdict verdict = compare(c, pattern, outputs, answers);
    if (verdict.status == Status::pass) return;
    throw Failure(fmt::format("the output of the {} timed launch: {}", which, verdict.reason));
  };

  Times version_times, best_times, heuristic_times;
  const auto sample_version = [&](bool checked, const char* which) {
    tensors.poison();
    version_times.cold.push_back(timer_->cold(version_work, checked ? snapshot.take() : Work()));
    if (checked) check_snapshot(Pattern::normal, normal->answers, which);
  };
  const auto sample_baseline = [&](int round) {
    if (!baseline.baseline) return;
    try {
      best_times.cold.push_back(cold(*baseline.baseline, Choice::best));
      if (round % kHeuristicEvery == 0) heuristic_times.cold.push_back(cold(*baseline.baseline, Choice::heuristic));
    } catch (const std::exception& error) {  // no fault of the version, which goes on alone
      baseline.lose(error.what());
      result.baseline = baseline.result;
    }
  };

  // At some round, nobody knows which, the inputs are others: an answer kept from an earlier launch is wrong then.
  std::random_device random;
  const int surprise = integer ? std::uniform_int_distribution<int>(0, options_.samples - 1)(random) : -1;
  for (int round = 0; round < options_.samples; ++round) {
    if (round == surprise) {
      tensors.refill(integer->inputs);
      tensors.poison();
      timer_->cold(version_work, snapshot.take());
      check_snapshot(Pattern::integer, integer->answers, "surprise");
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
    const double seconds = std::max(median_of(times.cold, &Sample::seconds), 1e-9);
    return std::clamp(static_cast<int>(kMaxWarmSeconds / seconds), 1, kWarmLaunches);
  };
  for (int i = 0; i < (options_.checked ? kWarmSamples : 0); ++i) {
    version_times.warm.push_back(timer_->warm(version_work, warm_launches(version_times)));
    const Work best = baseline.baseline ? baseline.baseline->work(Choice::best) : Work();
    if (best) best_times.warm.push_back(timer_->warm(best, warm_launches(best_times)));
  }
  if (const std::string damage = tensors.damage(); !damage.empty()) throw Failure("after timing: " + damage);

  double highest_clock_hz = timer_->calibration().sm_clock_hz;
  for (const Times* times : {&version_times, &best_times}) {
    for (const Sample& s : times->cold) highest_clock_hz = std::max(highest_clock_hz, s.sm_clock_hz);
  }
  finish(version_times, highest_clock_hz);
  if (baseline.baseline) {
    finish(best_times, highest_clock_hz);
    finish(heuristic_times, highest_clock_hz);
    result.baseline.times = best_times;
    result.baseline.heuristic_times = heuristic_times;
  }

  const Sample typical{.seconds = median_of(version_times.cold, &Sample::seconds),
                       .stamp_seconds = median_of(version_times.cold, &Sample::stamp_seconds),
                       .wall_seconds = median_of(version_times.cold, &Sample::wall_seconds)};
  for (const std::string& doubt :
       {timer_->calibration().failure, disagreement(timer_->calibration(), typical), impossible(c, version_times)}) {
    if (doubt.empty() || result.verdict.status == Status::untrusted) continue;
    result.verdict.status = Status::untrusted;
    result.verdict.reason = doubt;
  }
  result.times = std::move(version_times);
}

}  // namespace ladder
