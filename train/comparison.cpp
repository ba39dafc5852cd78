#include "train/comparison.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/dependent_launch.h"
#include "core/early_tensors.h"
#include "core/error.h"
#include "io/aside_file.h"
#include "train/step_bench.h"
#include "train/sum_bench.h"

namespace ladder::train {
namespace {

using Json = nlohmann::json;

constexpr const char* kFlag = "--compare";
constexpr std::string_view kPromoted = "promoted";
constexpr int kMostBuckets = 64;

// A key that changes something else than versions.
struct Setting {
  std::string_view name;
  std::string_view words;                           // its values, for messages
  bool (*set)(Side& side, std::string_view value);  // returns false if it is none of them
  bool of_ranks = false;
};

// Sets `member` to `first` or `second` if `value` is the word of it.
template <class T, class Member>
bool choose(Member& member, std::string_view value, std::pair<std::string_view, T> first,
            std::pair<std::string_view, T> second) {
  if (value != first.first && value != second.first) return false;
  member = value == first.first ? first.second : second.second;
  return true;
}

template <bool Side::*kMember>
bool set_switch(Side& side, std::string_view value) {
  return choose<bool>(side.*kMember, value, {"on", true}, {"off", false});
}

bool set_ranks(Side& side, std::string_view value) {
  return choose<bool>(side.alone, value, {"all", false}, {"alone", true});
}
bool set_sums(Side& side, std::string_view value) {
  return choose<bool>(side.sums_beside, value, {"beside", true}, {"after", false});
}
bool set_reduce(Side& side, std::string_view value) {
  return choose<Dtype>(side.reduce, value, {"fp32", Dtype::f32}, {"bf16", Dtype::bf16});
}
bool set_buckets(Side& side, std::string_view value) {
  int buckets = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), buckets);
  if (error != std::errc() || end != value.data() + value.size() || buckets < 1 || buckets > kMostBuckets) return false;
  side.buckets = buckets;
  return true;
}

constexpr std::array kSettings = {
    Setting{"overlap", "on or off", set_switch<&Side::overlap>},
    Setting{"early", "on or off", set_switch<&Side::early>},
    Setting{"branches", "on or off", set_switch<&Side::branches>},
    Setting{"batches", "on or off", set_switch<&Side::batches>},
    Setting{"ranks", "all or alone", set_ranks, true},
    Setting{"sums", "beside or after", set_sums, true},
    Setting{"reduce", "fp32 or bf16", set_reduce, true},
    Setting{"buckets", "a number from 1 to 64", set_buckets, true},
};

struct Key {
  std::string_view name;
  std::vector<std::string_view> values;
};

UsageError error_in(std::string_view text, std::string_view says) {
  return UsageError(fmt::format("{} '{}': {}", kFlag, one_line(text, 120), says));
}

std::vector<Key> keys_of(std::string_view text) {
  std::vector<Key> keys;
  for (std::string_view left = text; true;) {
    std::string_view word = left.substr(0, left.find(','));
    const std::size_t length = word.size();
    if (const auto equals = word.find('='); equals != std::string_view::npos) {
      keys.push_back({.name = word.substr(0, equals), .values = {}});
      word.remove_prefix(equals + 1);
    }
    if (keys.empty() || word.empty()) throw error_in(text, "<layer>/<pass>=<version>,<version>, or overlap=on,off");
    keys.back().values.push_back(word);
    if (length == left.size()) return keys;
    left.remove_prefix(length + 1);
  }
}

bool asks_for_ranks(std::string_view text) {
  return std::ranges::any_of(keys_of(text), [](const Key& key) {
    const auto* s = std::ranges::find(kSettings, key.name, &Setting::name);
    return s != kSettings.end() && s->of_ranks;
  });
}

// A side with its step and the promotions, including the versions that the side asks for.
struct Built {
  Side side;
  Promotions promotions;
  std::unique_ptr<Step> step;
  float first_loss = 0;
  std::vector<double> seconds;  // of each replay, two per round
};

// Calls visit(operation, its choice) for each operation of a step.
template <class Visit>
void for_each_operation(const Step& step, const Visit& visit) {
  for (const Program* program : step.programs()) {
    for (std::size_t i = 0; i < program->tape().operations().size(); ++i) {
      visit(program->tape().operations()[i], program->choice(i));
    }
  }
}

// Throws Failure where a requested version runs no operation of the step.
void check_used(const Built& built) {
  for (const auto& [pass, version] : built.promotions.used()) {
    int operations = 0;
    int taken = 0;
    std::string reason;
    for_each_operation(*built.step,
                       [&, pass = pass, version = version](const Operation& o, const VersionChoice& choice) {
                         if (o.problem.pass != pass) return;
                         ++operations;
                         if (choice.version == version) ++taken;
                         if (reason.empty()) reason = choice.reason;
                       });
    if (operations == 0) throw Failure(fmt::format("{}: the step has no operation of {}", kFlag, pass->path()));
    if (taken == 0) {
      throw Failure(fmt::format("{}: {} {} runs none of the step's {} operations: {}", kFlag, pass->path(),
                                version->label(), operations, reason));
    }
  }
}

// Returns the version that runs each problem of `passes`, with the number of operations.
Json versions_of(const Step& step, const std::set<const Pass*>& passes) {
  std::map<std::tuple<std::string, std::string, std::string>, int> counts;
  for_each_operation(step, [&](const Operation& o, const VersionChoice& choice) {
    if (passes.contains(o.problem.pass)) ++counts[{o.problem.pass->path(), o.problem.text, choice.version->label()}];
  });
  Json versions = Json::array();
  for (const auto& [key, count] : counts) {
    const auto& [path, problem, version] = key;
    versions.push_back({{"pass", path}, {"problem", problem}, {"version", version}, {"operations", count}});
  }
  return versions;
}

// Replays the sides in turn, forth and back (A B B A), and appends two times per round to each side's `seconds`. Ranks
// begin each replay together.
void replay(std::deque<Built>& sides, int rounds, Stream stream, Barrier* barrier) {
  std::vector<Built*> order;
  order.reserve(2 * sides.size());
  for (Built& side : sides) order.push_back(&side);
  for (auto side = sides.rbegin(); side != sides.rend(); ++side) order.push_back(&*side);
  struct Interval {
    Event begin, end;
  };
  std::deque<Interval> intervals;
  for (int round = 0; round < rounds; ++round) {
    for (const Built* side : order) {
      if (barrier) barrier->enqueue(stream);
      Interval& interval = intervals.emplace_back();
      interval.begin.record(stream);
      side->step->replay(stream);
      interval.end.record(stream);
    }
  }
  if (!intervals.empty()) intervals.back().end.synchronize();
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    order[i % order.size()]->seconds.push_back(intervals[i].end.seconds_since(intervals[i].begin));
  }
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns the loss of step `number`, of all ranks, run with a learning rate of 0 so that the weights do not change.
float loss_of(StepBench& bench, Built& built, int number, Ranks& ranks) {
  bench.submit(*built.step, number, 0.0f);
  const std::vector<float> of_ranks = ranks.exchange(std::vector<float>{built.step->collect()->loss});
  const float loss = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0f) / static_cast<float>(of_ranks.size());
  if (!std::isfinite(loss)) throw Failure(fmt::format("{}: the loss of {} is {}", kFlag, built.side.name, loss));
  return loss;
}

StepOptions options_of(const Side& side, StepOptions options) {
  options.branches = options.branches && side.branches;
  options.batches = options.batches && side.batches;
  options.overlap = side.sums_beside.value_or(options.overlap);
  options.buckets = side.buckets.value_or(options.buckets);
  options.reduce = side.reduce.value_or(options.reduce);
  if (side.alone) options.communicator = nullptr;
  return options;
}

std::unique_ptr<Step> step_of(StepBench& bench, const Built& built, bool time_sums) {
  overlap_launches(built.side.overlap);
  load_early(built.side.early);
  StepOptions options = options_of(built.side, bench.options());
  options.time_sums = time_sums;
  std::unique_ptr<Step> step = bench.step(built.promotions, options);
  overlap_launches(true);
  load_early(true);
  return step;
}

// Returns the times of all ranks. Sets built.seconds to those of the rank with the greatest sum.
std::vector<std::vector<double>> take_slowest(Built& built, Ranks& ranks) {
  std::vector<std::vector<double>> of_ranks;
  for (const std::string& text : ranks.exchange(Json(built.seconds).dump())) {
    of_ranks.push_back(Json::parse(text).get<std::vector<double>>());
  }
  const auto sum = [](const std::vector<double>& seconds) {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
  };
  built.seconds = *std::ranges::max_element(of_ranks, {}, sum);
  return of_ranks;
}

}  // namespace

std::vector<Side> sides_of(std::string_view text) {
  const std::vector<Key> keys = keys_of(text);
  std::vector<Side> sides(keys[0].values.size());
  std::set<std::string_view> seen;
  for (const Key& key : keys) {
    if (!seen.insert(key.name).second) throw error_in(text, fmt::format("{} is there twice", key.name));
    if (key.values.size() < 2) throw error_in(text, fmt::format("{} has one value: two or more compare", key.name));
    if (key.values.size() != sides.size()) throw error_in(text, "every key has as many values as the first");
    for (std::size_t i = 0; i < sides.size(); ++i) {
      const std::string_view value = key.values[i];
      const std::string word = fmt::format("{}={}", key.name, value);
      sides[i].name += (sides[i].name.empty() ? "" : ",") + word;
      if (const auto* s = std::ranges::find(kSettings, key.name, &Setting::name); s != kSettings.end()) {
        if (!s->set(sides[i], value)) throw error_in(text, fmt::format("{} is {}, not '{}'", s->name, s->words, value));
      } else if (value != kPromoted) {
        sides[i].use += (sides[i].use.empty() ? "" : ",") + word;
      }
    }
  }
  return sides;
}

int compare(const TrainingConfig& config, const TrainingOptions& options, const std::string& text, int rounds,
            const std::filesystem::path& file, Ranks& ranks) {
  // Train first on a GPU: initial weights are partly zeros, and arithmetic on zeros draws less power. The emulator has
  // no power limit.
  const bool on_gpu = backend::kind() == backend::Kind::gpu;
  const int training_steps = on_gpu ? 100 : 1;
  const int warm_up_rounds = on_gpu ? 10 : 0;
  const std::vector<Side> wanted = sides_of(text);
  const bool several = ranks.size() > 1;
  if (!several && asks_for_ranks(text))
    throw error_in(text, "ranks, sums, reduce and buckets are of several ranks: --gpus");
  StepBench bench(config, options, ranks);
  std::deque<Built> sides;  // a deque, because steps keep references to their promotions
  std::set<const Pass*> passes;
  for (const Side& side : wanted) {
    Built& built = sides.emplace_back(Built{.side = side, .promotions = bench.promotions(), .step = nullptr});
    if (!side.use.empty()) built.promotions.use(side.use, kFlag);
    for (const auto& [pass, version] : built.promotions.used()) passes.insert(pass);
  }
  std::size_t bytes = bench.bytes();
  for (Built& built : sides) {
    built.step = step_of(bench, built, false);
    check_used(built);
    bytes += built.step->bytes();
  }

  std::optional<Barrier> barrier;
  if (several) barrier.emplace(ranks);
  const auto replay_sides = [&](int count) {
    replay(sides, count, sides[0].step->stream(), barrier ? &*barrier : nullptr);
  };
  // Ranks that train alone would part.
  const auto together = std::ranges::find(sides, false, [](const Built& built) { return built.side.alone; });
  if (together != sides.end()) bench.seconds_a_step(*together->step, 0, training_steps);
  for (Built& built : sides) built.first_loss = loss_of(bench, built, training_steps + 1, ranks);
  replay_sides(warm_up_rounds);
  for (Built& built : sides) built.seconds.clear();
  const double began = unix_seconds();
  replay_sides(rounds);
  const double ended = unix_seconds();

  Json record = record_of(config, "ladder.step-comparison/1");
  record.update({{"slug", backend::device().slug},
                 {"emulator", !on_gpu},
                 {"compared", text},
                 {"use", options.use},
                 {"ranks", ranks.size()},
                 {"rounds", rounds},
                 {"began", began},
                 {"ended", ended},
                 {"device_bytes", bytes},
                 {"sides", Json::array()}});
  for (Built& built : sides) {
    Json side = {{"name", built.side.name},
                 {"overlap", built.side.overlap},
                 {"graph_nodes", built.step->num_nodes()},
                 {"versions", versions_of(*built.step, passes)},
                 {"losses", {built.first_loss, loss_of(bench, built, training_steps + 1, ranks)}}};
    if (several) side["rank_seconds"] = take_slowest(built, ranks);
    side["seconds"] = built.seconds;
    if (several && !built.side.alone)
      side["sum_times"] = time_sums(*step_of(bench, built, true), ranks, on_gpu ? 20 : 1);
    record["sides"].push_back(std::move(side));
  }
  if (ranks.leads()) io::write_text(file, record.dump(1) + "\n");
  return 0;
}

}  // namespace ladder::train
