#include "bench/untrusted/times.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "bench/kept_plans.h"
#include "bench/roofline.h"
#include "bench/statistics.h"
#include "core/backend.h"
#include "core/error.h"
#include "reference/baseline.h"

namespace ladder {
namespace {

constexpr int kRounds = 30;
constexpr int kWarmRounds = 7;

// A sample from the candidate's figures.
Sample sample_of(const nlohmann::json& told, int launches) {
  return {.seconds = told.at("seconds"),
          .stamp_seconds = told.at("stamp_seconds"),
          .wall_seconds = told.at("wall_seconds"),
          .launches = launches};
}

class TimedRemotely {
 public:
  TimedRemotely(Remote& remote, CheckedCase& c, const AnyVersionDef& def) : remote_(remote), case_(c), def_(def) {}

  void refill(Pattern pattern) {
    pattern_ = pattern;
    remote_.ask({{"op", "time_refill"}}, flat_inputs(*case_, case_.run(pattern).inputs));
  }

  // A cold launch, or that many warm ones.
  Sample sample(int warm_launches = 0) {
    const Frame answer = remote_.ask({{"op", "time_sample"}, {"launches", warm_launches}});
    return sample_of(answer.head, std::max(warm_launches, 1));
  }

  // Throws Failure where what the latest launch wrote is wrong.
  void compare_outputs(const char* when) {
    const auto outputs =
        unpacked_outputs(*case_, remote_.ask({{"op", "time_outputs"}}, {}, num_output_values(*case_)).values);
    const Verdict verdict = compare(*case_, pattern_, outputs, case_.run(pattern_).expected, def_);
    if (verdict.status == Status::fail) throw Failure(fmt::format("{} timed launch: {}", when, verdict.reason));
  }

 private:
  Remote& remote_;
  CheckedCase& case_;
  const AnyVersionDef& def_;
  Pattern pattern_ = Pattern::normal;
};

std::string impossible(const Case& c, const CandidateTimes& times, const AnyVersionDef& def) {
  const double cold = cold_lower_bound_seconds(backend::device(), c, def);
  const double warm = warm_lower_bound_seconds(backend::device(), c, def);
  if (times.cold_seconds > 0 && times.warm_seconds > 0 && times.cold_seconds >= cold && times.warm_seconds >= warm)
    return {};
  return fmt::format("{:.2f} us cold and {:.2f} us warm, but the hardware needs {:.2f} us and {:.2f} us at its peak",
                     1e6 * times.cold_seconds, 1e6 * times.warm_seconds, 1e6 * cold, 1e6 * warm);
}

}  // namespace

CandidateTimes times_of(Remote& remote, CheckedCase& c, const AnyVersionDef& def) {
  const Frame calibrated = remote.ask({{"op", "time"}, {"plan", ""}});
  const Sample empty = sample_of(calibrated.head.at("empty"), 1);
  TimedRemotely timed(remote, c, def);
  timed.refill(Pattern::normal);
  std::random_device random;
  const int surprise = std::uniform_int_distribution<int>(1, kRounds - 2)(random);
  std::vector<Sample> cold;
  for (int round = 0; round < kRounds; ++round) {
    if (round == surprise) {
      timed.refill(Pattern::integer);
      (void)timed.sample();
      timed.compare_outputs("the surprise");
      timed.refill(Pattern::normal);
    }
    cold.push_back(timed.sample());
    if (round == 0 || round == kRounds - 1) timed.compare_outputs(round == 0 ? "the first" : "the last");
  }
  const int launches = warm_launches(timed.sample(kLeastWarmLaunches).seconds);
  std::vector<Sample> warm(kWarmRounds);
  for (Sample& one : warm) one = timed.sample(launches);

  CandidateTimes times{.doubt = one_line(calibrated.head.at("doubt").get<std::string>()),
                       .cold_seconds = median_sample(cold).seconds,
                       .warm_seconds = median_sample(warm).seconds};
  for (const std::string& doubt : {disagreement(empty, median_sample(cold)), disagreement(empty, median_sample(warm)),
                                   impossible(*c, times, def)}) {
    if (times.doubt.empty()) times.doubt = doubt;
  }
  return times;
}

BaselineTime baseline_of(CheckedCase& c) try {
  static Timer timer;
  const ReferenceRun& run = c.run(Pattern::normal);
  DeviceTensors tensors(*c, run.inputs, 0);
  const auto cold = [](const Work& work) { return timer.cold(work).seconds; };
  const Measure measure = [&](const Work& work) {
    timer.run(work);
    return typical_seconds([&] { return cold(work); });
  };
  const Search search = BaselineSearch{.takes_kept = true, .keeps = true}.of(*c);
  const auto baseline = make_baseline(*c, tensors.pointers(), search, measure);
  const Verdict verdict = judged(*baseline, *c, tensors, run);
  if (verdict.status != Status::pass) throw Failure(verdict.reason);
  std::vector<double> seconds(kRounds);
  const Work work = baseline->work(Choice::best);
  for (double& one : seconds) one = work ? cold(work) : baseline->sample(Choice::best);
  return {.cold_seconds = median(seconds), .library = baseline->library()};
} catch (const std::exception& error) {
  return {.library = one_line(error.what())};
}

}  // namespace ladder
